"""Programs that examine or change the interpreter, or run on another one's loop."""

from tests.programs.odd import EDITOR, Odd, differing

INTERPRETER = (
    Odd(
        "inspects_itself",
        "prints the number of its modules, threads and descriptors",
        """
        import gc, os, sys, threading
        class Mine:
            pass
        kept = [Mine() for number in range(3)]
        print(sum(type(found) is Mine for found in gc.get_objects()))
        print(len(sys.modules), len(threading.enumerate()), len(os.listdir("/proc/self/fd")))  # stop
        """,
        differs=differing(run="stdout", API="stdout", editor="stdout"),
        limit="By design: relay-agent adds modules, a daemon thread, a socket and a file for stacks.",
    ),
    Odd(
        "deep_recursion",
        "recurses up to the limit, and prints the depth",
        """
        import sys
        def depth(number):
            try:
                return depth(number + 1)
            except RecursionError:
                return number
        print("recursing")  # stop
        print(depth(0))
        """,
        differs=differing(editor="stdout"),
        limit="With an editor, the stack has frames of debugpy, so recursion ends a few calls earlier.",
    ),
    Odd(
        "own_temporary_directory",
        "sets TMPDIR, and then uses `tempfile`",
        """
        import os, tempfile
        print(tempfile.tempdir)  # stop
        os.environ["TMPDIR"] = os.getcwd()
        with tempfile.NamedTemporaryFile() as file:
            print(os.path.dirname(file.name) == os.getcwd())
        """,
        is_sensitive=True,
    ),
    Odd(
        "low_recursion_limit",
        "lowers the recursion limit to 60",
        """
        import sys
        sys.setrecursionlimit(60)
        print("low")  # stop
        """,
    ),
    Odd(
        "small_stacks",
        "starts threads with stacks of 64 KiB",
        """
        import threading
        threading.stack_size(65536)
        done = []
        def work(number):
            done.append(number * 2)  # stop
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
            thread.join()
        print(done)
        """,
        is_sensitive=True,
    ),
    Odd(
        "no_search_path",
        "clears `sys.path`",
        """
        import sys
        sys.path.clear()
        try:
            import wsgiref
        except ModuleNotFoundError as error:
            print(error)  # stop
        """,
    ),
    Odd(
        "warnings_as_errors",
        "runs with `-W error -bb`",
        """
        import warnings
        try:
            warnings.warn("mine")
        except UserWarning as error:
            print(error)  # stop
        try:
            str(b"mine")
        except BytesWarning as error:
            print(error)
        """,
        options=("-W", "error", "-bb"),
    ),
    Odd(
        "development_mode",
        "runs with `-X dev`, and leaves a file open",
        """
        import sys
        kept = open("data", "w")
        print(sys.flags.dev_mode)  # stop
        """,
        options=("-X", "dev"),
        is_sensitive=True,
    ),
    Odd(
        "optimized",
        "runs with `-OO`, without assertions",
        '''
        def work():
            """Documented."""
            assert False
        work()
        print(work.__doc__)  # stop
        ''',
        options=("-OO",),
    ),
    Odd(
        "zipapp",
        "is an archive made by `zipapp`",
        """
        import sys
        print(__name__, sys.argv[0])
        sys.exit(6)
        """,
        is_zipapp=True,
    ),
    Odd(
        "pickles_its_classes",
        "pickles a class defined in `__main__`, and prints its module",
        """
        import pickle
        class Mine:
            pass
        if __name__ == "__main__":
            print(type(pickle.loads(pickle.dumps(Mine()))) is Mine, Mine.__module__)  # stop
        """,
    ),
    Odd(
        "broken_builtins",
        "replaces `open`, `print` and `time.sleep` with functions that raise",
        """
        import builtins, sys, time
        def fail(*args, **kwargs):
            raise RuntimeError("not here")
        builtins.open = builtins.print = time.sleep = fail
        sys.stdout.write("broken\\n")  # stop
        """,
        differs=differing(editor="not_stopped"),
        limit="debugpy needs these functions, so breakpoints are not hit.",
    ),
    Odd(
        "uvloop",
        "runs asyncio on uvloop",
        """
        import asyncio, uvloop
        async def main():
            process = await asyncio.create_subprocess_exec("echo", "child", stdout=asyncio.subprocess.PIPE)
            print((await process.communicate())[0].decode().strip())
            return await asyncio.to_thread(lambda: "thread")  # stop
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            print(runner.run(main()))
        """,
        needs="uvloop",
        since=(3, 11),
        is_sensitive=True,
    ),
    Odd(
        "gevent",
        "is patched by gevent",
        """
        from gevent import monkey; monkey.patch_all()
        import gevent, time
        jobs = [gevent.spawn(lambda number=number: time.sleep(0.01) or number) for number in range(3)]
        gevent.joinall(jobs)
        print([job.value for job in jobs])  # stop
        """,
        needs="gevent",
        differs=differing(editor="not_stopped"),
        limit="The debug session ends when gevent patches the standard library under it. `GEVENT_SUPPORT=True` "
        "prevents this. On Python 3.13, gevent 26.9 prints a traceback in each forked child if a thread was started "
        "before the patch, as relay-agent does.",
        line="gevent patches the standard library under it",
        reported_in=frozenset({EDITOR}),
        is_sensitive=True,
    ),
    Odd(
        "eventlet",
        "is patched by eventlet",
        """
        import warnings; warnings.simplefilter("ignore")
        import eventlet; eventlet.monkey_patch()
        import threading, time
        found = []
        def work(number):
            time.sleep(0.01)
            found.append(number)
        threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(sorted(found))  # stop
        """,
        needs="eventlet",
        differs=differing(editor="stderr,not_stopped"),
        limit="debugpy does not work with eventlet. With an editor, the debug session ends when the job calls "
        "`monkey_patch()`, and the job continues; eventlet prints that it has not replaced some locks.",
        line="the debugger has ended: debugpy does not work with eventlet. hint: leave out monkey_patch()",
        reported_in=frozenset({EDITOR}),
        is_sensitive=True,
    ),
    Odd(
        "asyncio_debug",
        "runs asyncio in debug mode, and cancels its tasks at the end",
        """
        import asyncio
        async def forever():
            try:
                await asyncio.Event().wait()
            finally:
                print("cancelled")
        async def main():
            asyncio.get_running_loop().slow_callback_duration = 3600  # or it logs what a busy machine delays
            kept = asyncio.create_task(forever())
            await asyncio.sleep(0.01)
            print("ending")  # stop
        asyncio.run(main(), debug=True)
        """,
    ),
    Odd(
        "starts_debugpy",
        "starts debugpy itself",
        """
        import debugpy
        host, port = debugpy.listen(("127.0.0.1", 0))
        print(host)  # stop
        """,
        options=("-X", "frozen_modules=off"),  # otherwise, debugpy prints a warning with a time
        needs="debugpy",
        limit="With an editor, the program gets the port of the debugger that is already running.",
        line="debugpy.listen(): the debugger that was started for relay-client is used",
        reported_in=frozenset({EDITOR}),
    ),
)
