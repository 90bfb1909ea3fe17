"""Programs that are odd in how they start processes, become others, or end."""

from tests.programs.odd import EDITOR, FORKING, RUN, Odd, differing

PROCESSES = (
    Odd(
        "exits_in_a_thread",
        "calls `os._exit(3)` in a thread",
        """
        import os, threading
        def leave():
            print("leaving", flush=True)  # stop
            os._exit(3)
        threading.Thread(target=leave).start()
        threading.Event().wait()
        """,
        is_sensitive=True,
    ),
    Odd(
        "daemonises",
        "leaves its parent by a double fork, and writes a file",
        """
        import os, time
        print("leaving", flush=True)  # stop
        if os.fork():
            os._exit(0)
        os.setsid()
        if os.fork():
            os._exit(0)
        time.sleep(0.1)
        with open("data", "w") as data:
            data.write(str(os.getsid(0) != os.getpid()))
        print("daemon")
        """,
        **FORKING,
    ),
    Odd(
        "forks",
        "forks without exec; parent and child write files and print",
        """
        import os
        print("before", flush=True)
        child = os.fork()
        with open("parent" if child else "child", "w") as data:
            data.write("written")
        if not child:
            print("child", flush=True)
            os._exit(5)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print("parent", status)  # stop
        """,
        is_sensitive=True,
        **FORKING,
    ),
    Odd(
        "forks_with_a_warning_as_error",
        "forks with `-W error`, where Python 3.12 and later warn of other threads",
        """
        import os
        child = os.fork()
        if not child:
            os._exit(5)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))  # stop
        """,
        options=("-W", "error"),
    ),
    *(
        Odd(
            f"{method}_pool",
            f"has a pool of processes, started by {method}, that pickles a class defined in `__main__`",
            f"""
            import multiprocessing
            class Number:
                def __init__(self, value):
                    self.value = value
            def work(number):
                return Number(number.value * 2)
            if __name__ == "__main__":
                with multiprocessing.get_context({method!r}).Pool(2) as pool:
                    found = pool.map(work, [Number(value) for value in range(4)])
                    print([number.value for number in found])  # stop
                    pool.close()
                    pool.join()
            """,
        )
        for method in ("fork", "spawn", "forkserver")
    ),
    Odd(
        "isolated_child",
        "runs `python -I`, `python -E` and `python -S`",
        """
        import subprocess, sys
        for option in ("-I", "-E", "-S"):
            code = "import sys; print(sys.flags.isolated, sys.flags.ignore_environment, sys.flags.no_site)"
            subprocess.run([sys.executable, option, "-c", code], check=True)
        print("done")  # stop
        """,
    ),
    Odd(
        "isolated",
        "runs with `python -I`",
        """
        import sys
        print(sys.flags.isolated, sys.path[0].endswith("DIR"))  # stop
        """,
        options=("-I",),
        differs=differing(editor="not_stopped"),
        limit="It is not debugged under `relay-agent run`, only by the API.",
        line="python -I ignores the settings of the run",
        reported_in=frozenset({RUN, EDITOR}),
    ),
    Odd(
        "becomes_another_program",
        "replaces itself with another Python program (`os.execv`)",
        """
        import os, sys
        print("first", flush=True)  # stop
        with open("second.py", "w") as second:
            second.write("import sys; print('second', sys.argv[1:]); sys.exit(4)")
        os.execv(sys.executable, [sys.executable, "second.py", "given"])
        """,
        limit="The other program is a process to debug in its own right: with an editor, it waits for it once more.",
        is_sensitive=True,
    ),
    Odd(
        "no_environment",
        "clears its environment, and runs Python",
        """
        import os, subprocess, sys
        os.environ.clear()
        subprocess.run([sys.executable, "-c", "import os; print(sorted(os.environ))"], check=True)
        print("done")  # stop
        """,
    ),
    Odd(
        "own_session",
        "lowers its priority, and starts a session and a process group",
        """
        import os
        if os.getpgrp() == os.getpid():
            os.setpgid(0, os.getpgid(os.getppid()))
        os.setsid()
        print(os.getsid(0) == os.getpid() == os.getpgrp(), os.nice(3))  # stop
        """,
    ),
    Odd(
        "another_user",
        "gives up the rights of root, and writes a file",
        """
        import os
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        with open("data", "w") as data:
            data.write("written")
        print(os.getuid() != 0)  # stop
        """,
        is_sensitive=True,
    ),
    Odd(
        "kills_itself",
        "kills itself with SIGKILL",
        """
        import os, signal
        print("killing", flush=True)  # stop
        os.kill(os.getpid(), signal.SIGKILL)
        """,
    ),
    Odd(
        "interrupts_itself",
        "is interrupted by Ctrl-C, and ends by the signal",
        """
        import os, signal
        print("interrupting", flush=True)  # stop
        os.kill(os.getpid(), signal.SIGINT)
        signal.pause()
        """,
    ),
    Odd(
        "exits_with_a_text",
        "calls `sys.exit` with a text",
        """
        import sys
        print("exiting")  # stop
        sys.exit("nothing to do")
        """,
    ),
    Odd(
        "late_threads",
        "ends its main thread before another one, beside a daemon thread",
        """
        import threading
        def work():
            threading.main_thread().join()
            print("late")  # stop
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        threading.Thread(target=work).start()
        print("main ends")
        """,
    ),
)
