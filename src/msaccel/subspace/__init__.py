"""The mathematics of training in a subspace (DLDR, arXiv 2103.11154), in NumPy alone.

The weights of the network's trainable parameters, in their order, make one flat vector of M numbers (`layout`). During
the second half of stage 1 N of them are kept as files (`snapshots`); their k leading principal directions (`pca`) are
the rows of P, a k × M matrix (`basis`). Stage 2 looks for weights of smaller loss along P's rows only
(`projection`, `bfgs`).
"""
