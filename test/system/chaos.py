"""The engine of t_kills and of `make chaos`: folders are sent, one after another and two at once, while client, scheduler and nodes are killed
and frozen at random moments. A seed is a script: the same folders, the same faults in the same order after the same pauses.

What is held against it after every transfer:
 1. Its push completes within the script's repeats, and the folder that arrived is identical.
 2. What was acknowledged is not sent again. Sending shows as an audit row of kind `chunk`, acknowledging as the commit of one whose outcome is `stored`.
    A client that starts later sends nothing that was stored in the tables when it started. A client sends again what it has sent itself only where
    the node that took it was killed or frozen between that attempt's start and its answer: nothing that happens to the scheduler, to another node or
    to the client at any other time excuses it. And no client reports more chunks as sent than were missing when it started.
 3. What was acknowledged is there, and nothing else: in the middle of a round the clients are killed, and once all roles serve and every receipt is
    delivered, each chunk that the tables call stored is a file of its size on the node they name, and each file on a node is a stored chunk of an open
    transfer.
 4. Nothing outlives its owner: no unfinished part, chunk, spooled manifest or staging tree of a transfer that is over; one record a chunk."""
from harness import *

CHUNK = 64 << 10
FLAGS = ("--chunk-size", "64KiB")
GIVE_UP = {"HENG_GIVE_UP_SECONDS": "20"}
REPEATS = 6
ROLES = ["client", "scheduler", "n1", "n2", "n3"]


# --- folders ---

def odd_name(rng):
    return rng.choice([b"n" * 255, b"\xff\xfe latin \xe9", b"new\nline", b"100%41", " 凭证 2024 ".encode(), ("账" * 83).encode(), b"-rf", b"~", b"a\\b", b"\x01\x7f"])


def make_folder(root, rng):
    """One of the shapes; returns its name."""
    shape = rng.choice(["tiny", "tiny", "big", "mixed", "deep", "odd", "bare"])
    root = os.fsencode(root)
    os.makedirs(root)
    stamp = lambda: 1_600_000_000_000_000_000 + rng.randrange(10**17)
    if shape in ("tiny", "mixed"):
        fill(root, rng.randint(60, 400), (0, 6000), seed=rng.randrange(10**9))
    if shape in ("big", "mixed"):
        for i in range(rng.randint(1, 4)):
            size = rng.choice([CHUNK * 20, CHUNK * 8 + 1, rng.randint(1 << 20, 5 << 20)])
            write(os.path.join(root, b"big%d" % i), rng.randbytes(size), mtime_ns=stamp())
    if shape == "deep":
        path = root
        for i in range(60):
            path = os.path.join(path, b"d%d" % i)
            write(os.path.join(path, b"f"), rng.randbytes(rng.randint(0, 30_000)), mtime_ns=stamp())
    if shape == "odd":
        for i in range(40):
            folder = os.path.join(root, odd_name(rng), b"%d" % i)
            write(os.path.join(folder, odd_name(rng)), rng.randbytes(rng.choice([0, 1, 4096, CHUNK, CHUNK + 1])), mode=rng.choice([0o600, 0o644, 0o755]), mtime_ns=stamp())
    if shape == "bare":
        for i in range(rng.randint(0, 5)):
            os.makedirs(os.path.join(root, b"empty%d" % i, b"inner"))
        if rng.random() < 0.5:
            write(os.path.join(root, b"nothing"), b"", mtime_ns=stamp())
    return shape


# --- a transfer and its clients ---

class Sending:
    """A folder on its way: a client, and when it ended early, another."""

    def __init__(self, chaos, batch, source, rate, is_twin=False):
        self.chaos, self.batch, self.source, self.is_twin = chaos, batch, source, is_twin
        self.flags = (*FLAGS, "--name", batch, *(("--limit-rate", rate) if rate else ()))
        self.client, self.twin, self.starts, self.last, self.wait_until = None, None, 0, None, 0.0
        self.begin()

    def begin(self):
        """Notes what is acknowledged before the client starts."""
        stored = sql(self.chaos.up, "select transfer_id, file_id, chunk_index from chunk_view where batch = ? and state in ('stored', 'merged')", (self.batch,)) if self.starts else []
        self.chaos.starts.append((time.time_ns() // 1000, self.batch, frozenset(stored), self.is_twin))
        self.chaos.continued += len(stored) > 0
        self.starts += 1
        self.client = push_start(self.chaos.up, self.source, *self.flags, env=GIVE_UP)
        if self.is_twin and self.starts == 1:
            self.twin = push_start(self.chaos.up, self.source, *self.flags, env=GIVE_UP)

    def kill(self):
        if self.client:
            self.client.kill()

    def step(self, now, may_repeat):
        """True when it is over: completed, refused, or out of repeats."""
        if self.client is None:
            if now >= self.wait_until and may_repeat:
                self.begin()
            return False
        if self.client.poll() is None:
            return False
        self.last, self.client = Pushed(self.client), None
        is_over = self.last.code not in (4, -signal.SIGKILL) or self.starts > REPEATS
        self.wait_until = now + 0.1
        if is_over and self.twin:
            self.twin = Pushed(self.twin)
        return is_over


# --- the engine ---

class Chaos:
    def __init__(self, kills, seed, name="chaos"):
        self.seed, self.kills_wanted = seed, kills
        self.kills = self.freezes = self.transfers = self.interrupted = self.continued = self.settled = self.again = 0
        self.notes, self.starts, self.faults, self.frozen = [], [], [], {}
        self.rng = random.Random(seed)
        self.base = scratch(name)
        self.up = Roles(os.path.join(self.base, "data"), backend=self.rng.choice(BACKENDS),
                        conf={"node": "free_floor: 16MiB\nfree_floor_percent: 1\nsweep_interval: 500ms", "scheduler": "probe_interval: 300ms"})

    def note(self, text):
        self.notes.append(text)
        print(text, flush=True)

    # Faults. `faults` keeps [from, to, role, what] in wall microseconds: what may have lost an answer. It ends a second after the role serves again:
    # what was in flight is noticed by then.

    def fault(self, role, what="kill"):
        self.faults.append([time.time_ns() // 1000, 2**62, role, what])
        return self.faults[-1]

    def fault_over(self, fault):
        fault[1] = min(fault[1], time.time_ns() // 1000 + 1_000_000)

    def serves_again(self, role):
        for fault in self.faults:
            if fault[2] == role:
                self.fault_over(fault)

    def kill_role(self, role, sendings):
        self.kills += 1
        if role == "client":
            for sending in sendings:
                if sending.client and self.round_rng.random() < 0.7:
                    sending.kill()
                    # The next one may read its plan before the receipts of what the node had already are committed.
                    self.fault_over(self.fault(role))
            return
        self.thaw(role)
        self.fault(role)
        self.up.kill_role(role)

    def freeze(self, role, sendings, seconds, now):
        self.freezes += 1
        if role == "client":
            for sending in sendings:
                if sending.client and sending.client.poll() is None:
                    sending.client.send_signal(signal.SIGSTOP)
                    self.frozen[id(sending)] = (now + seconds, sending.client.send_signal, self.fault("client", "freeze"))
            return
        self.thaw(role)
        self.up.signal(role, signal.SIGSTOP)
        self.frozen[role] = (now + seconds, lambda number: self.up.signal(role, number), self.fault(role, "freeze"))

    def thaw(self, key):
        if key in self.frozen:
            _, send, fault = self.frozen.pop(key)
            send(signal.SIGCONT)
            self.fault_over(fault)

    def script(self, rng):
        """[(pause before it, what, whom, how long it stays dead or frozen)]"""
        events = []
        for _ in range(rng.choice([1, 2, 3, 3, 4, 6])):
            what = "freeze" if rng.random() < 0.2 else "kill"
            whom = rng.choice(ROLES + ["all"] if what == "kill" else ROLES)
            stays = rng.choice([0, 0, 0.05, 0.3, rng.uniform(0, 1.2)]) if what == "kill" else rng.choice([0.02, 0.2, rng.uniform(0, 2.5)])
            events.append((rng.uniform(0, 0.35), what, whom, stays))
        return events

    def round(self, number):
        rng = self.round_rng = random.Random(f"{self.seed} {number}")
        sendings = []
        for i in range(2 if rng.random() < 0.35 else 1):
            batch = f"r{number}-{i}"
            source = os.path.join(self.base, "source", batch)
            shape = make_folder(source, rng)
            # By a slow line faults meet transfers in their middle.
            rate = rng.choice(["", "1MiB", "1MiB", "3MiB"])
            sendings.append(Sending(self, batch, source, rate, is_twin=rng.random() < 0.1))
            sendings[-1].shape = shape
        events, due, settles = self.script(rng), 0.0, rng.random() < 0.5
        open_sendings, back, began = list(sendings), {}, time.monotonic()
        due = began + events[0][0]
        while open_sendings:
            now = time.monotonic()
            if now - began > 150:
                self.note(f"round {number}: still not over after 150 s: {[s.batch for s in open_sendings]}: {open_sendings[0].last}")
                break
            for key in [k for k, v in self.frozen.items() if now >= v[0]]:
                self.thaw(key)
            for role in [r for r, at in back.items() if now >= at]:
                del back[role]
                self.up.spawn(role)
            for role, process in self.up.procs.items():
                if process.ready_pipe is not None and role not in self.frozen and self.up.serving(role):
                    self.serves_again(role)
            if events and now >= due:
                _, what, whom, stays = events.pop(0)
                for role in ROLES if whom == "all" else [whom]:
                    if what == "freeze":
                        self.freeze(role, open_sendings, stays, now)
                        continue
                    self.kill_role(role, open_sendings)
                    if role != "client":
                        back[role] = now + stays
                due = now + (events[0][0] if events else 0)
            is_quiet = not events and not back and not self.frozen
            open_sendings = [s for s in open_sendings if not s.step(now, may_repeat="scheduler" not in back)]
            if is_quiet and settles and open_sendings and any(s.client for s in open_sendings):
                settles = False
                self.settle(number, open_sendings)
            time.sleep(0.01)
        for key in list(self.frozen):
            self.thaw(key)
        for role, at in back.items():
            self.up.spawn(role)
        for role in list(self.up.procs):
            wait_until(f"{role} serves", lambda: self.up.serving(role))
            self.serves_again(role)
        for sending in sendings:
            self.check_end(number, sending)
        self.up.wait_nodes()
        shutil.rmtree(os.path.join(self.base, "source"))

    # Checks.

    def settle(self, number, sendings):
        """Nobody sends any more, everybody serves, and every receipt is told: the tables and the disks must say the same."""
        for sending in sendings:
            for client in (sending.client, sending.twin):
                if client and not isinstance(client, Pushed):
                    client.kill()
                    client.wait()
            self.kills += 1
        for role in list(self.up.procs):
            wait_until(f"{role} serves", lambda: self.up.serving(role))
            self.serves_again(role)
        self.up.wait_nodes()
        try:
            wait_until("tables and disks agree", lambda: not self.disagreement(), 20)
        except TimeoutError:
            self.note(f"round {number}: settled, and yet {self.disagreement()}")
        self.settled += sql(self.up, "select count(*) from chunk_view c join transfers t on t.id = c.transfer_id where c.state = 'stored' and t.state = 'uploading'")[0][0]

    def disagreement(self):
        """Rows without their file, files without their row: both are looked at."""
        kept = [n for n in self.up.node_roles() if http("GET", f"{'https' if TLS else 'http'}://{self.up.addrs[n]}/health")[1].get("receipts_kept") != 0]
        if kept:
            return [f"receipts wait on {kept}"]
        files = {}
        for node in self.up.node_roles():
            top = os.path.join(self.up.data_dir(node), "tmp")
            for where, _, names in os.walk(top):
                for name in names:
                    path = os.path.join(where, name)
                    try:
                        files[(node, os.path.relpath(path, top))] = os.path.getsize(path)
                    except FileNotFoundError:  # what is over is removed meanwhile
                        return [f"{path} is just being removed"]
        rows = sql(self.up, "select c.transfer_id, c.file_id, c.chunk_index, c.size_bytes, c.actual_node from chunk_view c join transfers t on t.id = c.transfer_id"
                            " where c.state = 'stored' and t.state = 'uploading'")
        name = lambda transfer, file_id, chunk: f"{transfer}/{file_id}/{transfer}_{file_id}_{chunk}.part"
        bad = [f"row {r} without its file" for r in rows if files.get((r[4], name(*r[:3]))) != r[3]]
        stored = {name(*r[:3]): r for r in rows}
        for (node, path), size in files.items():
            row = stored.get(path)
            # One that is stored elsewhere too goes with the transfer. Of that the node told the scheduler, unless it died before.
            if row and row[3] == size and (row[4] == node or any(f[2:] == [node, "kill"] for f in self.faults) or sql(
                    self.up, "select 1 from audit where kind = 'chunk' and outcome = 'stored' and result = 'ok' and (transfer_id, file_id, chunk_index, node_id) = (?, ?, ?, ?)", (*row[:3], node))):
                continue
            bad.append(f"{node} has {path} of {size} bytes without its row: {row}")
        return bad[:5]

    def check_end(self, number, sending):
        self.transfers += 1
        self.interrupted += sending.starts > 1
        last = sending.last
        what = f"round {number}, {sending.batch} ({sending.shape}{', two clients' if sending.is_twin else ''}, {sending.starts} clients)"
        if last is None or last.code != 0 or last.result.get("state") != "completed":
            self.note(f"{what}: {last}")
        if sending.is_twin and isinstance(sending.twin, Pushed) and sending.twin.code not in (0, 4, -signal.SIGKILL):
            self.note(f"{what}: the second client: {sending.twin}")
        bad = differences(sending.source, self.up.final(sending.batch))
        if bad:
            self.note(f"{what}: {bad[:3]}")
        shutil.rmtree(self.up.final(sending.batch), ignore_errors=True)
        self.check_attempts(what, sending)

    def check_attempts(self, what, sending):
        rows = sql(self.up, "select a.transfer_id, a.file_id, a.chunk_index, a.outcome, a.result, a.node_id, a.started_us, a.at_us from audit a join transfers t"
                            " on t.id = a.transfer_id where a.kind = 'chunk' and a.request_id != 'inventory' and cast(t.batch as text) = ? order by a.started_us, a.id", (sending.batch,))
        starts = [s for s in self.starts if s[1] == sending.batch]
        chunks = {}
        for row in rows:
            chunks.setdefault(row[:3], []).append(row)
        for key, attempts in chunks.items() if not sending.is_twin else ():
            for number, (_, _, _, outcome, _, node, started, _) in enumerate(attempts):
                # Of a request that waited in a frozen node's socket nobody knows who sent it.
                if any(f[2] == node and f[3] == "freeze" and f[0] <= started <= f[1] for f in self.faults):
                    continue
                sender = max((s for s in starts if s[0] < started), default=None)
                acked = [a for a in attempts[:number] if a[3] == "stored" and a[4] == "ok" and a[7] < started]
                self.again += len(acked) > 0
                if sender and key in sender[2]:
                    self.note(f"{what}: chunk {key[1]}/{key[2]} was stored when a client started, and was sent to {node} again ({outcome}); {self.story(attempts)}")
                # Within its first second it may be the one before it that is heard.
                elif any(sender and a[6] > sender[0] + 1_000_000 and not self.was_answer_lost(a) for a in acked):
                    self.note(f"{what}: chunk {key[1]}/{key[2]} was sent to {node} again ({outcome}) by a client that knew it acknowledged; {self.story(attempts)}")
        last = sending.last.result if sending.last else {}
        missing = last.get("chunks", 0) - len(starts[-1][2])
        if last.get("state") == "completed" and not sending.is_twin and last.get("chunks_sent", 0) > missing:
            self.note(f"{what}: the last client sent {last.get('chunks_sent')} chunks, and {missing} were missing when it started")

    def was_answer_lost(self, attempt):
        """Was its node killed or frozen before the sender had its answer for sure?"""
        _, _, _, _, _, node, started, at = attempt
        return any(f[2] == node and f[0] <= at + 1_000_000 and f[1] >= started for f in self.faults)

    def story(self, mine):
        """What is known of a chunk, and the faults, in seconds since its first attempt began."""
        zero = mine[0][6]
        at = lambda us: f"{(us - zero) / 1e6:.2f}" if us < 2**62 else "?"
        return "; ".join([f"{r[5]} {r[3]}/{r[4]} began {at(r[6])}, recorded {at(r[7])}" for r in mine]
                         + [f"{f[2]} {f[3]} {at(f[0])} to {at(f[1])}" for f in self.faults if f[1] > zero - 10**7]
                         + [f"a client began {at(s[0])}" for s in self.starts if s[0] > zero - 10**7])

    def check_all_over(self):
        doubles = sql(self.up, "select count(*) from (select transfer_id, file_id, chunk_index from chunk_view group by 1, 2, 3 having count(*) > 1) twice")
        if doubles != [(0,)]:
            self.note(f"more than one record for {doubles} chunks")
        wrong = sql(self.up, "select id from transfers t where stored_count + merged_count + pending_count + lost_count + digest_failed_count != chunk_count"
                             " or chunk_count != (select count(*) from chunks c where c.transfer = t.num)"
                             " or stored_count != (select count(*) from chunks c where c.transfer = t.num and c.state = 'stored')")
        if wrong:
            self.note(f"counters differ from the rows of {wrong[:3]}")
        try:
            wait_until("nothing is left over", lambda: not leftovers(self.up), 30)
        except TimeoutError:
            self.note(f"left over: {leftovers(self.up)[:5]}")

    def run(self):
        print(f"seed {self.seed}, {self.kills_wanted} kills", flush=True)
        began, number = time.monotonic(), 0
        while self.kills < self.kills_wanted:
            self.round(number)
            number += 1
            if number % 20 == 0:
                print(f"{number} rounds, {self.kills} kills, {self.freezes} freezes, {len(self.notes)} faults found, {time.monotonic() - began:.0f} s", flush=True)
        self.check_all_over()
        print(f"{self.kills} kills and {self.freezes} freezes over {self.transfers} transfers, {self.interrupted} of them with more than one client, "
              f"{self.continued} clients went on where another had stopped, {self.settled} stored chunks were looked for and {self.again} sent again where an answer was lost, "
              f"{time.monotonic() - began:.0f} s", flush=True)
        return not self.notes


def main(kills):
    seed = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(10**9))
    kills = int(os.environ.get("CHAOS_KILLS") or kills)
    chaos = Chaos(kills, seed)
    ok(chaos.run(), f"{kills} kills: every push finished, identical; nothing acknowledged was sent again or lost; nothing is left over", f"CHAOS_SEED={seed}, {len(chaos.notes)} bad")
    # A handful may all miss.
    ok(chaos.continued > 0 and chaos.settled > 0 or kills < 20, "the kills did interrupt pushes in their middle")
    finish()


if __name__ == "__main__":
    main(500)
