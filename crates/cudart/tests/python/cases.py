"""Each case copies page-locked memory to the device, in a line that is marked with `# copy`, and
writes to it too early, in a line that is marked with `# write`. The argument names the case, the
next one a folder for files."""
import ctypes
import importlib.util
import os
import sys
import threading

case, folder = sys.argv[1:3]
cuda = ctypes.CDLL(os.environ["LIBRARY"])
PAGE = 4096


def must(code):
    assert code == 0, code


host, device, stream = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
must(cuda.cudaStreamCreate(ctypes.byref(stream)))
must(cuda.cudaMallocHost(ctypes.byref(host), ctypes.c_size_t(PAGE)))
must(cuda.cudaMalloc(ctypes.byref(device), ctypes.c_size_t(PAGE)))
COPY = (device, host, ctypes.c_size_t(PAGE), 1, stream)
memory = (ctypes.c_ubyte * PAGE).from_address(host.value)


def module(path, text):
    """A module in a file of its own."""
    path = os.path.join(folder, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    spec = importlib.util.spec_from_file_location("module", path)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def in_function():
    cuda.cudaMemcpyAsync(*COPY)  # copy in_function
    memory[7] = 1  # write in_function


def in_thread():
    def work():
        cuda.cudaMemcpyAsync(*COPY)  # copy in_thread
        memory[7] = 1  # write in_thread

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def in_library():
    library = module(
        "site-packages/library.py",
        "def copies(cuda, what):\n    cuda.cudaMemcpyAsync(*what)\n\n\n"
        "def writes(to):\n    to[7] = 1\n",
    )
    library.copies(cuda, COPY)  # copy in_library
    library.writes(memory)  # write in_library


def in_lambda():
    copies = lambda: cuda.cudaMemcpyAsync(*COPY)  # copy in_lambda
    copies()
    writes = lambda at: memory.__setitem__(at, 1)  # write in_lambda
    writes(7)


def in_generator():
    def steps():
        yield cuda.cudaMemcpyAsync(*COPY)  # copy in_generator
        memory[7] = 1  # write in_generator
        yield 0

    for code in steps():
        must(code)


def in_comprehension():
    codes = [
        cuda.cudaMemcpyAsync(*COPY)  # copy in_comprehension
        for _ in range(1)
    ]
    codes += [
        memory.__setitem__(at, 1)  # write in_comprehension
        for at in range(7, 8)
    ]


def in_class():
    class Step:
        def __enter__(self):
            return cuda.cudaMemcpyAsync(*COPY)  # copy in_class

        def __exit__(self, *_):
            (
                memory
            )[
                7
            ] = 1  # write in_class

    with Step():
        pass


def far_below(depth=150):
    """Too far below for the frames that are looked at."""
    def below(left):
        if left == 0:
            cuda.cudaMemcpyAsync(*COPY)  # copy far_below
            memory[7] = 1  # write far_below
        else:
            below(left - 1)

    below(depth)


def in_paths():
    """Names of one, two and four bytes a character."""
    text = "def both(cuda, what, to):\n    cuda.cudaMemcpyAsync(*what)\n    to[7] = 1\n"
    for name in ["plain", "caf\u00e9", "\u65e5\u672c", "\U0001f680"]:
        module(name + "/step.py", text).both(cuda, COPY, memory)
        must(cuda.cudaStreamSynchronize(stream))


def in_replaced():
    """Code objects that are freed, and whose addresses others get."""
    for line in range(1, 301):
        text = "\n" * (line - 1) + "cuda.cudaMemcpyAsync(*COPY); memory[7] = 1"
        exec(compile(text, "<made>", "exec"))
        must(cuda.cudaStreamSynchronize(stream))


def in_native():
    native = ctypes.CDLL(sys.argv[3])
    # What the thread does, it does while this one is here.
    must(native.in_thread(*COPY))  # copy before # write before
    must(cuda.cudaStreamSynchronize(stream))
    must(native.in_thread(*COPY))  # copy in_native # write in_native


def freed():
    cuda.cudaMemcpyAsync(*COPY)
    must(cuda.cudaFree(device))
    cuda.cudaFree(device)  # freed


def with_gil():
    """The GIL stays held in the calls."""
    held = ctypes.PyDLL(os.environ["LIBRARY"])
    held.cudaMemcpyAsync(*COPY)  # copy with_gil
    memory[7] = 1  # write with_gil


def loaded():
    """Reads the destination of a download, whose pages cannot be closed."""
    plain = (ctypes.c_ubyte * PAGE)()
    must(cuda.cudaHostRegister(plain, ctypes.c_size_t(PAGE), 0))

    def loads():
        return plain[0]  # load

    must(cuda.cudaMemcpyAsync(plain, device, ctypes.c_size_t(PAGE), 2, stream))
    loads()
    must(cuda.cudaStreamSynchronize(stream))
    must(cuda.cudaHostUnregister(plain))


globals()[case]()
cuda.cudaStreamSynchronize(stream)
print("done")
