"""What the ranks of a job do together: communicator, collectives, barrier, parameter sync."""
