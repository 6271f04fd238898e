"""Random programs of PyTorch that are right by construction, and the same with a wait less.

    order     what CUDA orders: a plain model of streams, events and PyTorch's allocators
    program   a program as steps, each with its text and what it does in the model
    make      makes one, and knows every value that it computes
    tensors   the variables of a program, and their twins on the CPU
    threads   steps that two threads make at the same time
    run       runs one in a process with the drop-in runtime
    judge     runs many, and tells where pinlane is wrong
    __main__  the command: scripts/soak python
"""
