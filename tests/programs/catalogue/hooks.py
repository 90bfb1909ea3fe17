"""Programs that replace the interpreter's hooks, or handle signals in a way of their own."""

from tests.programs.odd import EDITOR, FORKING, Odd, differing

HOOKS = (
    Odd(
        "own_excepthook",
        "replaces `sys.excepthook`, and raises",
        """
        import sys
        sys.excepthook = lambda kind, error, trace: print("caught", kind.__name__, error, file=sys.stderr)
        print("raising")  # stop
        raise ValueError("mine")
        """,
        is_sensitive=True,
    ),
    Odd(
        "rich_traceback",
        "installs `rich.traceback`, and raises",
        """
        from rich.traceback import install
        install(width=80, show_locals=False)
        print("raising")  # stop
        raise ValueError("mine")
        """,
        needs="rich",
    ),
    Odd(
        "typer_application",
        "is a typer application that raises",
        """
        import typer
        app = typer.Typer()
        @app.command()
        def main():
            print("raising")  # stop
            raise ValueError("mine")
        app()
        """,
        needs="typer",
    ),
    Odd(
        "thread_excepthook",
        "replaces `threading.excepthook`, and raises in a thread",
        """
        import sys, threading
        threading.excepthook = lambda args: print("caught", args.exc_value, file=sys.stderr)
        def work():
            raise ValueError("mine")  # stop
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        """,
        is_sensitive=True,
    ),
    Odd(
        "raising_atexit",
        "raises in an `atexit` function",
        """
        import atexit
        def fail():
            raise ValueError("at exit")
        atexit.register(fail)
        print("ending")  # stop
        """,
    ),
    Odd(
        "unraisable",
        "raises in a destructor at the end of the interpreter",
        """
        class Fragile:
            def __del__(self):
                raise ValueError("destroyed")
        kept = Fragile()
        print("ending")  # stop
        """,
    ),
    Odd(
        "own_trace",
        "sets a trace function of its own",
        """
        import sys
        seen = []
        def trace(frame, event, argument):
            if frame.f_code.co_name == "work":
                seen.append(event)
                return trace
        def work():
            number = 1
            return number + 1
        print("tracing")  # stop
        sys.settrace(trace)
        work()
        sys.settrace(None)
        print(seen)
        """,
        differs=differing(editor="stderr"),
        limit="Tracing is the job's alone while its function is set: breakpoints are not hit.",
        line="sys.settrace() should not be used when the debugger is being used",
        reported_in=frozenset({EDITOR}),
    ),
    Odd(
        "own_profile",
        "sets a profile function of its own",
        """
        import sys
        seen = []
        def profile(frame, event, argument):
            if frame.f_code.co_name == "work":
                seen.append(event)
        def work():
            return 1
        sys.setprofile(profile)
        work()  # stop
        sys.setprofile(None)
        print(seen)
        """,
    ),
    Odd(
        "coverage_run",
        "runs under `coverage run`",
        """
        import coverage
        measured = coverage.Coverage.current()
        def work(number):
            if number > 1:
                return "never"
            return "always"
        print(work(1))  # stop
        measured.stop()
        print(sorted(measured.get_data().lines(__file__)))
        """,
        options=("-m", "coverage", "run", "--data-file=coverage.data"),
        needs="coverage",
        differs=differing(editor="not_stopped"),
        limit="On Python 3.11, a debugger that attaches on demand takes the trace function of coverage for the rest of "
        "the run, with a line in the log. Coverage that starts later takes the one that breakpoints need.",
    ),
    Odd(
        "raising_alarm",
        "has a handler for SIGALRM that raises",
        """
        import signal, time
        class Late(Exception):
            pass
        def raise_late(number, frame):
            raise Late
        signal.signal(signal.SIGALRM, raise_late)
        print("waiting")  # stop
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            time.sleep(60)
        except Late:
            print("late")
        """,
    ),
    Odd(
        "exiting_sigterm",
        "has a handler for SIGTERM that exits",
        """
        import os, signal, sys
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(7))
        print("terminating")  # stop
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()
        """,
    ),
    Odd(
        "sigwait",
        "blocks a signal in all its threads, and waits for it with `sigwait`",
        """
        import os, signal
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1})
        print("blocked", flush=True)  # stop
        for number in range(100):
            os.kill(os.getpid(), signal.SIGUSR1)
            signal.sigwait({signal.SIGUSR1})
        os.kill(os.getpid(), signal.SIGTERM)
        print(signal.sigwait({signal.SIGTERM}).name)
        """,
        is_sensitive=True,
    ),
    Odd(
        "signal_to_parent",
        "blocks a signal that another process sends, and waits for it with `sigtimedwait`",
        """
        import os, signal, subprocess
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
        print("blocked", flush=True)  # stop
        for number in range(3):
            subprocess.run(["sh", "-c", f"kill -HUP {os.getpid()}"], check=True)
            print(signal.Signals(signal.sigtimedwait({signal.SIGHUP}, 60).si_signo).name, flush=True)
        """,
    ),
    Odd(
        "reaps_children",
        "has a handler for SIGCHLD that reaps all children",
        """
        import os, signal, time
        reaped = []
        def reap(number, frame):
            try:
                while (found := os.waitpid(-1, os.WNOHANG))[0]:
                    reaped.append(found[1])
            except ChildProcessError:
                pass
        signal.signal(signal.SIGCHLD, reap)
        for number in range(3):
            if not os.fork():
                os._exit(0)
        while len(reaped) < 3:
            time.sleep(0.01)
        time.sleep(0.3)
        print(len(reaped))  # stop
        """,
        has_own_agent=True,
        **FORKING,
    ),
    Odd(
        "waits_for_children",
        "waits for any child with `os.wait`, until there are no more",
        """
        import os
        for number in range(3):
            if not os.fork():
                os._exit(number)
        ended = []
        try:
            while True:
                ended.append(os.waitstatus_to_exitcode(os.wait()[1]))
        except ChildProcessError:
            print(sorted(ended))  # stop
        """,
        has_own_agent=True,
        is_sensitive=True,
        **FORKING,
    ),
    Odd(
        "ignores_sigchld",
        "ignores SIGCHLD, and runs a command",
        """
        import signal, subprocess
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        print(subprocess.run(["false"]).returncode)  # stop
        """,
        has_own_agent=True,
    ),
    Odd(
        "own_faulthandler",
        "registers `faulthandler` for signals of its own, with a file",
        """
        import faulthandler, os, signal
        log = open("log", "w")
        faulthandler.enable(log)
        faulthandler.register(signal.SIGUSR1, file=log, all_threads=False)
        print("registered")  # stop
        os.kill(os.getpid(), signal.SIGUSR1)
        faulthandler.unregister(signal.SIGUSR1)
        """,
        is_sensitive=True,
    ),
    Odd(
        "segmentation_fault",
        "crashes in C code, with `faulthandler`",
        """
        import ctypes, faulthandler, resource
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        faulthandler.enable(all_threads=False)
        print("crashing", flush=True)  # stop
        ctypes.string_at(0)
        """,
        differs=differing(editor="stderr"),
        limit="`faulthandler` names debugpy's extension module, too.",
        line="_pydevd_bundle.pydevd_cython",
        reported_in=frozenset({EDITOR}),
    ),
    Odd(
        "wakeup_descriptor",
        "has a wake-up descriptor for signals",
        """
        import os, select, signal
        read, write = os.pipe2(os.O_NONBLOCK)
        signal.set_wakeup_fd(write)
        signal.signal(signal.SIGUSR1, lambda number, frame: None)
        print("waiting")  # stop
        os.kill(os.getpid(), signal.SIGUSR1)
        select.select([read], [], [])
        print(list(os.read(read, 10)) == [signal.SIGUSR1])
        """,
    ),
)
