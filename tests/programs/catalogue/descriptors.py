"""Programs that are odd in their files, streams and limits."""

from tests.programs.odd import Odd, differing

DESCRIPTORS = (
    Odd(
        "closes_descriptors",
        "closes all descriptors from 3 on, and writes files",
        """
        import os
        os.closerange(3, 256)
        files = [open(f"data{number}", "w") for number in range(12)]
        for number in range(200):
            for file in files:
                file.write(f"line {number}\\n")
        print("written")  # stop
        for file in files:
            file.close()
        print(sum(os.path.getsize(f"data{number}") for number in range(12)))
        """,
        differs=differing(editor="not_stopped,status,stdout,stderr,files"),
        limit="The debug session ends, because its socket is closed, too; a debugger can attach again. If relay-agent "
        "or debugpy is reading a file at that moment, as they do after an attach, a file of the program that gets the "
        "same number may be closed.",
        line="the job has closed the debugger's descriptor",
        is_sensitive=True,
    ),
    Odd(
        "closes_stderr",
        "closes `sys.stderr` and descriptor 2, and opens a file that gets its number",
        """
        import os, sys
        sys.stderr.close()
        try:
            os.close(2)
        except OSError:
            pass
        data = os.open("data", os.O_WRONLY | os.O_CREAT)
        os.write(data, b"mine")
        print(data)  # stop
        """,
    ),
    Odd(
        "closes_descriptor_2",
        "closes descriptor 2 without `sys.stderr`, and opens a file that gets its number",
        """
        import os, sys
        os.close(2)
        data = os.open("data", os.O_WRONLY | os.O_CREAT)
        os.write(data, b"mine")
        print(data)  # stop
        """,
        is_sensitive=True,
    ),
    Odd(
        "replaces_stderr",
        "replaces `sys.stderr` with an object of its own, then with None",
        """
        import sys
        class Quiet:
            def write(self, text):
                raise RuntimeError("no stderr here")
        sys.stderr = Quiet()
        print("quiet")  # stop
        sys.stderr = None
        print("none")
        """,
    ),
    Odd(
        "daemon_streams",
        "leads its standard streams to /dev/null, as daemons do, and writes a file",
        """
        import os
        null = os.open("/dev/null", os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        with open("data", "w") as data:
            data.write("written")  # stop
        """,
    ),
    Odd(
        "broken_pipe",
        "writes to a pipe that nobody reads",
        """
        import os
        read, write = os.pipe()
        os.dup2(write, 1)
        os.close(read)
        os.close(write)
        print("x" * 100_000)  # stop
        """,
    ),
    Odd(
        "sigpipe",
        "runs a shell pipeline whose reader ends first",
        """
        import subprocess
        print(subprocess.run("yes | head -1; echo ${PIPESTATUS[0]}", shell=True, executable="/bin/bash").returncode)
        print("done")  # stop
        """,
    ),
    Odd(
        "stdin_to_end",
        "reads its stdin to the end",
        """
        import sys
        text = sys.stdin.read()
        print(len(text), text[:7])  # stop
        """,
        stdin=b"first line\n" * 1000,
    ),
    Odd(
        "few_descriptors",
        "lowers its limit of descriptors to 20",
        """
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
        files = [open(f"data{number}", "w") for number in range(8)]
        print(len(files))  # stop
        for file in files:
            file.write("x")
            file.close()
        """,
    ),
    Odd(
        "no_more_descriptors",
        "opens descriptors up to its limit, and continues",
        """
        import os, resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        opened = []
        try:
            while True:
                opened.append(os.open("/dev/null", os.O_RDONLY))
        except OSError as error:
            print(error)  # stop
        for number in opened:
            os.close(number)
        print("closed")
        """,
        is_sensitive=True,
    ),
    Odd(
        "little_memory",
        "limits its address space, and runs out of memory",
        """
        import resource
        pages = int(open("/proc/self/statm").read().split()[0])
        limit = pages * resource.getpagesize() + (512 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        try:
            block = bytearray(1 << 30)
        except MemoryError:
            print("out of memory")  # stop
        """,
    ),
    Odd(
        "small_files",
        "limits the size of its files, and exceeds it",
        """
        import resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        try:
            with open("data", "wb", buffering=0) as data:
                while True:
                    data.write(b"x" * 1024)
        except OSError as error:
            print(error)  # stop
        """,
    ),
    Odd(
        "deleted_directory",
        "changes to a directory and deletes it",
        """
        import os
        os.mkdir("gone")
        os.chdir("gone")
        os.rmdir("../gone")
        print("deleted")  # stop
        try:
            os.getcwd()
        except FileNotFoundError as error:
            print(error.strerror)
        """,
    ),
    Odd(
        "latin_1",
        "changes the encoding of its stdout and its locale",
        """
        import locale, sys
        locale.setlocale(locale.LC_ALL, "C")
        sys.stdout.reconfigure(encoding="latin-1", errors="strict")
        print("\\xe9")  # stop
        try:
            print("\\u20ac")
        except UnicodeEncodeError as error:
            print(error.reason)
        """,
    ),
    Odd(
        "socket_timeout",
        "sets a default time-out for sockets that passes",
        """
        import socket, time
        socket.setdefaulttimeout(0.05)
        time.sleep(0.2)
        print("waited")  # stop
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            server.listen()
            try:
                server.accept()
            except TimeoutError as error:
                print(error)
        """,
        is_sensitive=True,
    ),
    Odd(
        "no_sockets",
        "replaces `socket.socket` with a class that raises, as pytest-socket does",
        """
        import socket
        class Disabled(socket.socket):
            def __new__(cls, *args, **kwargs):
                raise RuntimeError("sockets are disabled")
        socket.socket = Disabled
        try:
            socket.create_connection(("127.0.0.1", 9))
        except RuntimeError as error:
            print(error)  # stop
        """,
    ),
)
