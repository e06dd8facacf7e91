"""What a job keeps on disk: weights, and the resume checkpoints from which a killed or failed job is resumed.

`weights` are the last and the best checkpoint; `resume_file` is a resume checkpoint, `gather` exchanges its arrays
between ranks, `state` has the state dicts of components; `safetensors_io` is the file format of all of them.
"""
