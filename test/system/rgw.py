"""A real S3 server for tests: Ceph's RADOS gateway with one monitor and one OSD that keeps everything in memory, on free ports of this machine."""
import atexit, datetime, hashlib, hmac, http.client, os, shutil, signal, socket, subprocess, time, urllib.parse, uuid

KEY_ID, SECRET = "AKTESTONLY", "secret/for+tests"
CONF = """[global]
fsid = {fsid}
mon_host = [v2:127.0.0.1:{ports[0]}/0,v1:127.0.0.1:{ports[1]}/0]
public_addr = 127.0.0.1
auth_cluster_required = cephx
auth_service_required = cephx
auth_client_required = cephx
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 1
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_max_pg_per_osd = 1000
mon_data_avail_crit = 1
osd_objectstore = memstore
memstore_device_bytes = 1073741824
mon_data = {dir}/mon
osd_data = {dir}/osd
run_dir = {dir}
admin_socket = {dir}/$name.asok
log_file = {dir}/$name.log
keyring = {dir}/keyring
"""


def _free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Rgw:
    """Started when made, stopped at exit. `url` is its endpoint."""

    def __init__(self, folder):
        self.dir, self.processes = folder, {}
        for name in ("mon", "osd"):
            os.makedirs(os.path.join(folder, name))
        self.ports = _free_ports(3)
        self.url = f"http://127.0.0.1:{self.ports[2]}"
        self.conf = os.path.join(folder, "ceph.conf")
        fsid, osd = str(uuid.uuid4()), str(uuid.uuid4())
        with open(self.conf, "w") as file:
            file.write(CONF.format(fsid=fsid, dir=folder, ports=self.ports))
        atexit.register(self.stop)
        keyring, monmap = os.path.join(folder, "keyring"), os.path.join(folder, "monmap")
        caps = {"mon.": ["mon"], "client.admin": ["mon", "osd"], "client.rgw": ["mon", "osd"], "osd.0": ["osd"]}
        for i, (name, rooms) in enumerate(caps.items()):
            allow = [word for room in rooms for word in ("--cap", room, "allow *")] + (["--cap", "mon", "allow profile osd"] if name == "osd.0" else [])
            self.run("ceph-authtool", *(["-C"] if i == 0 else []), keyring, "--gen-key", "-n", name, *allow)
        self.run("monmaptool", "--create", "--fsid", fsid, "--addv", "a", f"[v2:127.0.0.1:{self.ports[0]},v1:127.0.0.1:{self.ports[1]}]", monmap)
        self.run("ceph-mon", "-c", self.conf, "-i", "a", "--mkfs", "--monmap", monmap, "--keyring", keyring)
        self.spawn("mon", "ceph-mon", "-f", "-c", self.conf, "-i", "a")
        self.run("ceph", "-c", self.conf, "--connect-timeout", "30", "osd", "new", osd)
        self.run("ceph-osd", "-c", self.conf, "-i", "0", "--mkfs", "--osd-uuid", osd)
        self.spawn("osd", "ceph-osd", "-f", "-c", self.conf, "-i", "0")
        self.start()
        self.run("radosgw-admin", "-c", self.conf, "-n", "client.rgw", "user", "create", "--uid=t", "--display-name=t", f"--access-key={KEY_ID}",
                 f"--secret-key={SECRET}")

    def run(self, *command):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=90, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stdout[-2000:]}")

    def spawn(self, role, *command):
        with open(os.path.join(self.dir, role + ".out"), "ab") as out:
            self.processes[role] = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)

    def start(self):
        """The gateway, until it answers: it waits for the OSD by itself."""
        self.spawn("rgw", "radosgw", "-f", "-c", self.conf, "-n", "client.rgw", f"--rgw_data={self.dir}", f"--rgw_frontends=beast endpoint=127.0.0.1:{self.ports[2]}")
        end = time.monotonic() + 60
        while time.monotonic() < end and self.processes["rgw"].poll() is None:
            try:
                self.ask("GET", "/")
                return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError("radosgw does not answer: " + open(os.path.join(self.dir, "rgw.out"), errors="replace").read()[-2000:])

    def stop_gateway(self):
        self.processes["rgw"].kill()
        self.processes["rgw"].wait()

    def stop(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()

    # --- a client of its own: whatever heng's signer gets wrong, this one does not share it ---

    def ask(self, method, path, query=(), body=b"", headers=None, key_id=KEY_ID, secret=SECRET):
        """(status, body, headers); path is bytes or text, not encoded yet."""
        path = urllib.parse.quote(path, safe="/-._~")
        text = "&".join(f"{urllib.parse.quote(k, safe='-._~')}={urllib.parse.quote(v, safe='-._~')}" for k, v in sorted(query))
        now, digest, host = datetime.datetime.utcnow(), hashlib.sha256(body).hexdigest(), self.url.removeprefix("http://")
        stamp, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
        signed = {"host": host, "x-amz-content-sha256": digest, "x-amz-date": stamp, **{k.lower(): v for k, v in (headers or {}).items()}}
        names = ";".join(sorted(signed))
        canonical = "\n".join([method, path, text, "".join(f"{k}:{signed[k]}\n" for k in sorted(signed)), names, digest])
        scope = f"{day}/us-east-1/s3/aws4_request"
        key = ("AWS4" + secret).encode()
        for word in (day, "us-east-1", "s3", "aws4_request"):
            key = hmac.new(key, word.encode(), hashlib.sha256).digest()
        signature = hmac.new(key, f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}".encode(), hashlib.sha256).hexdigest()
        signed["authorization"] = f"AWS4-HMAC-SHA256 Credential={key_id}/{scope},SignedHeaders={names},Signature={signature}"
        connection = http.client.HTTPConnection(host, timeout=30)
        try:
            connection.request(method, path + ("?" + text if text else ""), body, signed)
            answer = connection.getresponse()
            return answer.status, answer.read(), {k.lower(): v for k, v in answer.getheaders()}
        finally:
            connection.close()
