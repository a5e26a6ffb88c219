// What a Python session runs: reads lines "run NONCE", executes the text in one namespace, as at Python's own prompt, before
// which the file is run that PYTHONSTARTUP names.

/** Names of the driver are not seen by the commands. A command's last expression is shown as the prompt would; an error
 * is shown with its traceback and gives status 1, an interrupt 130; `exit(n)` ends the session. */
export const PYTHON_DRIVER = `
def _driver():
    import ast, io, linecache, os, sys, traceback
    space = sys.modules["__main__"].__dict__
    for name in [n for n in space if n == "_driver"]:
        del space[name]
    for fd in (3, 4, 5):
        os.set_inheritable(fd, False)
    own, name = os.getpid(), "<session>"
    given, (ended, writer) = os.dup(0), os.pipe()
    os.close(writer)
    def execute(source):
        linecache.cache[name] = (len(source), None, io.StringIO(source, None).readlines(), name)
        tree = ast.parse(source, name)
        last = ast.Interactive([tree.body.pop()]) if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, name, "exec"), space)
        if last is not None:
            exec(compile(last, name, "single"), space)
    def show():
        kind, error, trace = sys.exc_info()
        while trace is not None and trace.tb_frame.f_code.co_filename != name:
            trace = trace.tb_next
        traceback.print_exception(kind, error, trace)
    def flush():
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass
    def empty(stream):
        try:
            if stream.fileno() != 0:
                return
            try:
                stream.read()
            except UnicodeError:
                # The decoder keeps the half of a character.
                if isinstance(stream, io.TextIOWrapper):
                    stream.__init__(stream.buffer, stream.encoding, stream.errors, "\\n")
        except Exception:
            pass
    def renew():
        # What the last command has not read of its stdin may stand in the streams' buffers: with the descriptor at its end
        # they give that, and no more. The descriptor itself may have been closed, as open(0) does.
        try:
            try:
                os.dup2(ended, 0)
                for stream in (sys.__stdin__, sys.stdin):
                    empty(stream)
            finally:
                os.dup2(given, 0)
        except OSError:
            return
        stdin = sys.__stdin__
        if stdin is sys.stdin and stdin.closed:
            sys.stdin = sys.__stdin__ = open(0, "r", -1, stdin.encoding, stdin.errors, "\\n", False)
    def once(merge):
        status, kept = 0, None
        try:
            if merge:
                flush()
                kept = os.dup(2)
                os.dup2(1, 2)
            try:
                renew()
                execute(os.pread(5, os.fstat(5).st_size, 0).decode("utf-8", "surrogateescape"))
            except SystemExit:
                raise
            except KeyboardInterrupt:
                show()
                status = 130
            except BaseException:
                show()
                status = 1
        finally:
            flush()
            if kept is not None:
                os.dup2(kept, 2)
                os.close(kept)
            if os.getpid() != own:
                os._exit(status)
        return status
    try:
        startup = os.environ.get("PYTHONSTARTUP")
        if startup:
            with open(startup, "rb") as file:
                exec(compile(file.read(), startup, "exec"), space)
    except Exception:
        pass
    status, pending = 0, b""
    while True:
        try:
            while b"\\n" not in pending:
                more = os.read(3, 4096)
                if not more:
                    return
                pending += more
            line, pending = pending.split(b"\\n", 1)
            verb, nonce = line.split(b" ")
            if verb != b"sync":
                status = once(verb == b"merge")
            os.write(4, nonce + b" " + str(status).encode() + b"\\n")
        except KeyboardInterrupt:
            # It came too late for the command.
            continue
_driver()
`;
