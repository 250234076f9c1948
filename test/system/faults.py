"""What the t_faults_* tests share: roles whose disk calls fail by order (shim.c), and what a push must do then."""
from harness import *

FLAGS = ("--chunk-size", "64KiB")


def build_shim(base):
    path = os.path.join(base, "shim.so")
    subprocess.run(["gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-D_GNU_SOURCE", "-o", path, os.path.join(ROOT, "test/system/shim.c"), "-ldl"], check=True)
    return path


def shimmed(base, role, shim, clock_s=0):
    """The environment of a process whose calls are under control(base, role, ...), and whose wall clock is off."""
    # A sanitizer's library must be there before anything calls what it watches.
    found = re.search(r"build/(asan|tsan)/", HENG)
    first = subprocess.run(["gcc", f"-print-file-name=lib{found[1]}.so"], capture_output=True, text=True, check=True).stdout.strip() + ":" if found else ""
    return {"LD_PRELOAD": first + shim, "SHIM_FILE": os.path.join(base, f"shim-{role}"), "SHIM_CLOCK_US": str(clock_s * 1_000_000)}


def control(base, role, *rules):
    """(call, errno, skip, delay_ms, piece of a path) each; none: all goes well again. Written beside and renamed: read at each call."""
    path = os.path.join(base, f"shim-{role}")
    with open(path + ".new", "w") as file:
        for rule in rules:
            file.write(" ".join(map(str, rule)) + "\n")
    os.rename(path + ".new", path)


def stored_chunks(up, batch):
    return sql(up, "select count(*) from chunk_view where batch = ? and state in ('stored', 'merged')", (batch,))[0][0]


def push_again(up, source, batch, name, *flags):
    """A push after the fault: finishes, identical, and sends nothing that was acknowledged."""
    before = stored_chunks(up, batch)
    done = push(up, source, *FLAGS, "--name", batch, *flags)
    ok(done.code == 0 and done.result.get("state") == "completed" and not differences(source, up.final(batch)), f"{name}: repeated, it finishes, identical", str(done))
    total = done.result.get("chunks", 0)
    ok(done.result.get("chunks_sent", total) <= total - before, f"{name}: nothing acknowledged is sent again", f"{before} of {total} were stored; {done}")
    return done
