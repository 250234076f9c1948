"""What the system tests share: the real binary, real processes, real folders; readiness instead of sleeps; clean-up whatever happens."""
import atexit, csv, hashlib, hmac, json, os, random, re, shutil, signal, socket, sqlite3, ssl, stat, subprocess, sys, tempfile, time, urllib.error, urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HENG = os.environ.get("HENG", os.path.join(ROOT, "build/release/heng"))
BACKENDS = ["io_uring", "epoll"]
# HENG_TEST_TLS=1: everything that the tests start talks TLS, with certificates between scheduler and nodes.
TLS = os.environ.get("HENG_TEST_TLS") == "1"
_failed = 0
# tools/test-run ends a test that takes too long by SIGTERM: what it started ends with it.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def ok(claim, name, detail=""):
    """One check: a line that tools/test-run counts."""
    global _failed
    if claim:
        print(f"ok {name}", flush=True)
    else:
        _failed += 1
        print(f"not ok {name} {detail}", flush=True)
    return bool(claim)


def finish():
    sys.exit(1 if _failed else 0)


def scratch(name):
    path = tempfile.mkdtemp(prefix=f"heng-{name}-")
    atexit.register(remove, path)
    return path


def remove(path):
    for where, folders, _ in os.walk(os.fsencode(path)):
        for folder in folders:
            full = os.path.join(where, folder)
            if not os.path.islink(full):
                os.chmod(full, 0o700)
    shutil.rmtree(os.fsencode(path), ignore_errors=True)


# What pushes remember of networks is no business of the machine that tests run on, nor of another test.
os.environ["XDG_STATE_HOME"] = scratch("state")


def wait_until(what, claim, seconds=30.0):
    """Polls for a condition with a deadline; the only waiting that tests do."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = claim()
        if value:
            return value
        time.sleep(0.02)
    raise TimeoutError(f"after {seconds} s: {what}")


def certificates(folder, wanted):
    """An authority (when there is none yet) and {name: subjectAltName} signed by it, by the commands that docs/security.md gives; the authority's file."""
    with open(os.path.join(ROOT, "docs/security.md")) as page:
        block = page.read().split("### An authority and its certificates")[1].split("```sh\n")[1].split("```")[0]
    lines = block.split("\ncertificate ")[0]
    if os.path.exists(os.path.join(folder, "ca.pem")):
        lines = "certificate() {" + lines.split("certificate() {")[1]
    os.makedirs(folder, exist_ok=True)
    script = "set -eu\n" + lines + "\n" + "".join(f'certificate "{name}" "{names}"\n' for name, names in wanted.items())
    done = subprocess.run(["sh", "-c", script], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise RuntimeError(f"the commands of docs/security.md failed: {done.stdout.decode()}")
    return os.path.join(folder, "ca.pem")


# --- HENG_TEST_STORE=pg: the tables in PostgreSQL, on a server of this test's own ---

STORE = os.environ.get("HENG_TEST_STORE", "sqlite")
_pg = {}


def pg_server(*words):
    return subprocess.run([os.path.join(ROOT, "test/pg_server"), *words], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def pg_store(data):
    """The URL of the schema that belongs to this data folder, made when it is asked for first."""
    if not _pg:
        _pg["dir"] = tempfile.mkdtemp(prefix="heng-pg-")
        atexit.register(pg_server, "stop", _pg["dir"])
        _pg["url"] = pg_server("start", _pg["dir"])
    name = "t_" + hashlib.sha256(data.encode()).hexdigest()[:16]
    psql(_pg["url"], f"create schema if not exists {name}")
    return f"{_pg['url']}&options=-csearch_path%3D{name}"


def pg_restart(mode):
    pg_server("restart", _pg["dir"], mode)


def psql(url, query):
    # A server that was just started again may refuse for a moment.
    for left in range(50, -1, -1):
        done = subprocess.run(["psql", "-qX", "--csv", "-t", "-v", "ON_ERROR_STOP=1", url, "-c", query], capture_output=True)
        if done.returncode == 0:
            return done.stdout.decode(errors="surrogateescape")
        if done.returncode != 2 or left == 0:
            raise RuntimeError(f"{query}: {done.stderr.decode()}")
        time.sleep(0.1)


class Up:
    """`heng up` on a folder; its children by role."""

    def __init__(self, data, nodes=3, restart_after="10", backend=None, listen="127.0.0.1:0", env=None, tls=TLS):
        self.tls, self.ca = tls, None
        self.data, self.nodes, self.restart_after, self.listen = data, nodes, str(restart_after), listen
        self.env = dict(os.environ, **(env or {}))
        if backend:
            self.env["HENG_LOOP"] = backend
        self.store = pg_store(data) if STORE == "pg" else None
        if self.store:
            self.env["HENG_STORE"] = self.store
        self.process = None
        self.start()
        atexit.register(self.kill)

    def start(self):
        self.log = open(os.path.join(os.path.dirname(self.data), "up.log"), "ab")
        self.process = subprocess.Popen(
            [HENG, "up", "--data", self.data, "--listen", self.listen, "--nodes", str(self.nodes), "--restart-after", self.restart_after]
            + (["--tls"] if self.tls else []),
            stdout=subprocess.PIPE, stderr=self.log, env=self.env)
        line = self.process.stdout.readline().decode()
        found = re.fullmatch(r"ready (https?://\S+) data=(.+?) key=(.+?)(?: ca=(.+))?\n", line)
        if not found:
            raise RuntimeError(f"heng up said {line!r}, exit {self.process.poll()}; see {self.log.name}: {open(self.log.name).read()[-2000:]}")
        self.ready_line, self.url, self.key_file = line, found.group(1), found.group(3)
        self.key = open(self.key_file).read().strip()
        self.listen = self.url.split("://")[1]
        self.trust(found.group(4))

    def trust(self, ca):
        """Whatever calls it from now on believes its authority."""
        self.ca = ca
        if ca:
            os.environ["HENG_CA"] = ca

    def children(self):
        """{role: pid}: 'scheduler', 'n1', ..."""
        found = {}
        for pid in os.listdir("/proc"):
            if not pid.isdigit():
                continue
            try:
                status = open(f"/proc/{pid}/status").read()
                words = open(f"/proc/{pid}/cmdline", "rb").read().split(b"\0")
            except OSError:
                continue
            if f"PPid:\t{self.process.pid}\n" not in status or len(words) < 4 or "State:\tZ" in status:
                continue
            role = "scheduler" if words[1] == b"scheduler" else os.path.basename(words[3].decode()).removesuffix(".yaml")
            found[role] = int(pid)
        return found

    def kill_role(self, role):
        pid = self.children().get(role)
        if pid:
            os.kill(pid, signal.SIGKILL)
        return pid

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.process and self.process.stdout:
            self.process.stdout.close()

    def stop(self):
        """SIGTERM; returns (exit code, seconds)."""
        began = time.monotonic()
        self.process.terminate()
        code = self.process.wait(20)
        return code, time.monotonic() - began

    def restart(self):
        self.kill()
        self.start()

    def wait_nodes(self, count=None):
        def all_work():
            try:
                nodes = api(self, "GET", "/api/v1/nodes")[1]["nodes"]
            except (OSError, ValueError, KeyError):  # the scheduler is just being started again
                return False
            return sum(n["takes_work"] for n in nodes) >= (count or self.nodes)
        wait_until("nodes take work", all_work)

    def database(self):
        return os.path.join(self.data, "scheduler", "heng.db")

    def final(self, batch):
        return os.path.join(os.fsencode(self.data), b"final", os.fsencode(batch))


class Roles(Up):
    """A scheduler and nodes from configuration files, each a process of the test's own, which it may stop, kill and start again.
    `conf`, `envs` and `prefixes` are by role: lines added to its configuration, variables added to its environment, words before its command.
    `user`: a line added to the user."""

    def __init__(self, data, nodes=3, backend=None, conf=None, envs=None, prefixes=None, user="", tls=TLS, **paths):
        self.user = user
        self.conf, self.envs, self.prefixes, self.paths, self.procs, self.addrs = conf or {}, envs or {}, prefixes or {}, paths, {}, {}
        super().__init__(data, nodes, backend=backend, tls=tls)

    def start(self):
        os.makedirs(self.data)
        self.key, self.key_file = "a-key-for-this-test-only", os.path.join(self.data, "uploader.key")
        write(self.key_file, self.key.encode() + b"\n")
        write(os.path.join(self.data, "cluster.key"), b"1 " + b"5a" * 32 + b"\n", mode=0o600)
        if self.tls:
            here = "DNS:localhost,IP:127.0.0.1,IP:::1"
            self.trust(certificates(os.path.join(self.data, "tls"), dict({"scheduler": "URI:heng:scheduler," + here},
                                                                          **{n: f"URI:heng:node:{n},{here}" for n in self.node_roles()})))
        self.start_role("scheduler")
        for role in self.node_roles():
            self.start_role(role)
        self.wait_nodes()

    def node_roles(self):
        return [f"n{i}" for i in range(1, self.nodes + 1)]

    def data_dir(self, role):
        return self.paths.get(role, os.path.join(self.data, role))

    def tls_text(self, role):
        d = os.path.join(self.data, "tls")
        return f"tls_certificate: {d}/{role}.pem\ntls_key: {d}/{role}.key\ntls_ca: {d}/ca.pem\n" if self.tls else ""

    def text(self, role):
        d = self.data
        if role == "scheduler":
            # It comes back where it was: that is where its nodes and clients look for it.
            return (f"listen: {self.addrs.get(role, self.listen)}\nstate_dir: {d}/scheduler\n" + (f"store: {self.store}\n" if self.store else "") + f"staging_dir: {self.paths.get('staging', d + '/staging')}\n"
                    f"final_dir: {self.paths.get('final', d + '/final')}\ncluster_key_file: {d}/cluster.key\n{self.tls_text(role)}users:\n  - name: tester\n"
                    f"    key_sha256: {hashlib.sha256(self.key.encode()).hexdigest()}\n    role: uploader\n" + (f"    {self.user}\n" if self.user else ""))
        return (f"node_id: {role}\nlisten: 127.0.0.1:0\nstate_dir: {d}/{role}\ndata_dir: {self.data_dir(role)}\nscheduler: {self.url}\n"
                f"cluster_key_file: {d}/cluster.key\n{self.tls_text(role)}")

    def spawn(self, role):
        """Starts the role's process; serving() tells whether it has come so far."""
        path = os.path.join(self.data, role + ".yaml")
        lines = dict(line.split(": ", 1) for line in self.text(role).split("users:")[0].splitlines())
        lines.update(line.split(": ", 1) for line in self.conf.get(role, self.conf.get("node", "") if role != "scheduler" else "").splitlines())
        users = self.text(role).partition("users:")
        write(path, ("".join(f"{k}: {v}\n" for k, v in lines.items()) + users[1] + users[2]).encode())
        read_end, write_end = os.pipe()
        with open(os.path.join(self.data, role + ".log"), "ab") as log:
            process = subprocess.Popen([*self.prefixes.get(role, []), HENG, "scheduler" if role == "scheduler" else "node", "-c", path], stdout=log, stderr=log, pass_fds=[write_end],
                                       env=dict(self.env, HENG_READY_FD=str(write_end), **self.envs.get(role, {})))
        os.close(write_end)
        os.set_blocking(read_end, False)
        process.ready_pipe = read_end
        self.procs[role] = process
        return process

    def serving(self, role):
        process = self.procs[role]
        if process.ready_pipe is None:
            return True
        try:
            said = os.read(process.ready_pipe, 100).decode().strip()
        except BlockingIOError:
            return False
        os.close(process.ready_pipe)
        process.ready_pipe = None
        if not said:
            process.wait(10)
            raise RuntimeError(f"{role} did not start: {self.log_of(role)[-1500:]}")
        self.addrs[role] = said
        if role == "scheduler":
            self.url = ("https://" if self.tls else "http://") + said
        return True

    def start_role(self, role):
        self.spawn(role)
        wait_until(f"{role} serves", lambda: self.serving(role))

    def log_of(self, role):
        with open(os.path.join(self.data, role + ".log"), errors="replace") as log:
            return log.read()

    def signal(self, role, number):
        if self.procs[role].poll() is None:
            self.procs[role].send_signal(number)

    def kill_role(self, role):
        process = self.procs[role]
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.ready_pipe is not None:
            os.close(process.ready_pipe)
            process.ready_pipe = None
        return process.pid

    def kill(self):
        for role in list(self.procs):
            self.kill_role(role)

    def stop(self):
        """SIGTERM to all, nodes first; the exit codes by role."""
        codes = {}
        for role in self.node_roles() + ["scheduler"]:
            self.signal(role, signal.SIGTERM)
            codes[role] = self.procs[role].wait(20)
        return codes

def sql(up, query, args=()):
    if up.store:
        for value in args:
            query = query.replace("?", str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'", 1)
        return [tuple(int(v) if re.fullmatch(r"-?[0-9]{1,18}", v) else v for v in row) for row in csv.reader(psql(up.store, query).splitlines())]
    with sqlite3.connect(f"file:{up.database()}?mode=ro", uri=True, timeout=20) as connection:
        connection.text_factory = bytes
        rows = connection.execute(query, args).fetchall()
    connection.close()
    return [tuple(v.decode(errors="surrogateescape") if isinstance(v, bytes) else v for v in row) for row in rows]


def http(method, url, headers=None, body=None, timeout=60, certificate=None):
    """(status, parsed JSON or text, headers). certificate: (PEM file, key file) that is shown."""
    context = ssl.create_default_context(cafile=os.environ.get("HENG_CA")) if url.startswith("https:") else None
    if certificate:
        context.load_cert_chain(*certificate)
    request = urllib.request.Request(url, data=body, method=method, headers=headers or {})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    try:
        answer = opener.open(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        data = answer.read()
        kind = answer.headers.get("Content-Type", "")
        return answer.status, json.loads(data) if "application/json" in kind and data else data.decode(errors="replace"), answer.headers


def api(up, method, path, body=None, headers=None, key=None):
    return http(method, up.url + path, dict({"X-Api-Key": key or up.key}, **(headers or {})), body)


def push_start(up, folder, *args, json_output=True, env=None, key_file=None):
    command = [HENG, "push", folder, "--to", up.url, "--key-file", key_file or up.key_file, *args]
    if json_output:
        command.append("--json")
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ, **(env or {})))


class Pushed:
    def __init__(self, process, timeout=300):
        out, err = process.communicate(timeout=timeout)
        self.code, self.out, self.err = process.returncode, out.decode(errors="replace"), err.decode(errors="replace")
        try:
            self.result = json.loads(self.out.strip().splitlines()[-1])
        except (IndexError, ValueError):
            self.result = {}

    def __str__(self):
        return f"exit {self.code}\nstdout: {self.out[-1500:]}\nstderr: {self.err[-3000:]}"


def push(up, folder, *args, timeout=300, **more):
    return Pushed(push_start(up, folder, *args, **more), timeout)


def listing(root):
    """{relative path in bytes: (type, mode, size, mtime ns, link target)}; the root too."""
    root, found = os.fsencode(root), {}
    for where, folders, files in os.walk(root):
        for name in [None] + folders + files:
            path = where if name is None else os.path.join(where, name)
            facts = os.lstat(path)
            is_file, is_link = stat.S_ISREG(facts.st_mode), stat.S_ISLNK(facts.st_mode)
            found[os.path.relpath(path, root)] = (stat.S_IFMT(facts.st_mode), stat.S_IMODE(facts.st_mode), facts.st_size if is_file else None,
                                                   facts.st_mtime_ns, os.readlink(path) if is_link else None)
    return found


def same_bytes(a, b):
    with open(a, "rb") as left, open(b, "rb") as right:
        while True:
            x, y = left.read(1 << 20), right.read(1 << 20)
            if x != y:
                return False
            if not x:
                return True


def differences(source, target):
    """Empty when both folders hold the same names, types, modes, sizes, times, links and bytes."""
    source, target = os.fsencode(source), os.fsencode(target)
    if not os.path.isdir(target):
        return [f"{target!r} is not there"]
    a, b = listing(source), listing(target)
    bad = [f"{path!r}: {a.get(path)} != {b.get(path)}" for path in sorted(set(a) | set(b)) if a.get(path) != b.get(path)]
    for path, facts in a.items():
        if facts[0] == stat.S_IFREG and path in b and not same_bytes(os.path.join(source, path), os.path.join(target, path)):
            bad.append(f"{path!r}: bytes differ")
    return bad


def write(path, data, mode=None, mtime_ns=None):
    path = os.fsencode(path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)
    if mode is not None:
        os.chmod(path, mode)
    if mtime_ns is not None:
        os.utime(path, ns=(mtime_ns, mtime_ns))


def fill(root, count, size, seed, folders=7):
    """`count` files of `size` bytes (a number or a (least, most) pair) in nested folders."""
    rng = random.Random(seed)
    for i in range(count):
        size_now = rng.randint(*size) if isinstance(size, tuple) else size
        write(os.path.join(os.fsencode(root), b"d%d" % (i % folders), b"e%d" % (i % 3), b"f%06d.bin" % i), rng.randbytes(size_now),
              mtime_ns=1_600_000_000_000_000_000 + rng.randrange(10**17))


def leftovers(up):
    """Files that no finished transfer should leave: unfinished parts, chunk files, staging, spool."""
    found = []
    paths = getattr(up, "paths", {})
    for folder in [f"n{i}" for i in range(1, up.nodes + 1)] + ["staging", "scheduler/spool"]:
        for where, _, files in os.walk(paths.get(folder, os.path.join(up.data, folder))):
            found += [os.path.join(where, f) for f in files if ".part" in f or folder in ("staging", "scheduler/spool")]
    return found


# --- tickets, as a client in another language would make them (src/wire/ticket.h) ---

def chunk_token(ticket, transfer_key, transfer, file_id, chunk_index, size, digest, expiry=None, nonce=None):
    expiry = int(time.time()) + 60 if expiry is None else expiry
    nonce = nonce or os.urandom(16).hex()
    text = f"{transfer} {file_id} {chunk_index} {expiry} {nonce} {digest} {size}"
    signature = hmac.new(bytes.fromhex(transfer_key), text.encode(), hashlib.sha256).hexdigest()
    return f"{ticket}.{expiry}.{nonce}.{signature}"


def manifest(entries):
    """[(path bytes, content or None for a folder)] -> manifest text with fixed modes and times."""
    from urllib.parse import quote_from_bytes
    lines, total, count = ["heng-manifest 1\n", "D 755 1600000000000000000 .\n"], 0, 1
    for path, content in entries:
        name = quote_from_bytes(path, safe="/-._~")
        if content is None:
            lines.append(f"D 755 1600000000000000000 {name}\n")
        else:
            lines.append(f"F 644 1600000000000000000 {len(content)} {name}\n")
            total += len(content)
        count += 1
    lines.append(f"end {count} {total}\n")
    return "".join(lines).encode()


def crc32c(data):
    table = crc32c.__dict__.setdefault("table", [])
    if not table:
        for i in range(256):
            for _ in range(8):
                i = (i >> 1) ^ (0x82F63B78 if i & 1 else 0)
            table.append(i)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def create_transfer(up, text, batch, key=None, crc=None, **query):
    from urllib.parse import urlencode
    arguments = urlencode(dict({"batch": batch, "digest": "sha256", "source": "test%3A/" + batch}, **query))
    return api(up, "POST", f"/api/v1/transfers?{arguments}", text, {"X-Manifest-CRC32C": f"{crc32c(text) if crc is None else crc:08x}"}, key)


def plan(up, transfer):
    """([object lines], [chunk lines], {node id: addr}) as lists of words."""
    _, text, _ = api(up, "GET", f"/api/v1/transfers/{transfer}/plan?after_file=0&after_chunk=0")
    lines = [line.split(" ") for line in text.splitlines()]
    nodes = {n["id"]: n["addr"] for n in api(up, "GET", f"/api/v1/transfers/{transfer}/nodes")[1]["nodes"]}
    return [l for l in lines if l[0] == "O"], [l for l in lines if l[0] == "C"], nodes


def put_chunk(addr, transfer, file_id, chunk_index, body, token, digest=None, size=None, length=None):
    headers = {"X-Auth-Token": token, "X-Chunk-SHA256": digest or hashlib.sha256(body).hexdigest(), "X-Chunk-Size": str(len(body) if size is None else size)}
    return http("PUT", f"{addr if addr.startswith('https:') else 'http://' + addr}/api/v1/upload/chunk/{transfer}/{file_id}/{chunk_index}", headers, body)
