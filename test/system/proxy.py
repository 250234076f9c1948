"""A TCP proxy with a bad network in it, for the system tests."""
import random, socket, threading, time


class Proxy:
    """Listens on a port of its own and passes to `target`. What it does to the bytes may change while it runs:
    reset_after   a function: bytes after which a connection is reset, both ways together; None: never
    piece         bytes at a time, with a pause between them, for the first `pieces_for` bytes of each direction
    delay         seconds before each piece
    stall_after   bytes after which nothing passes, while the connection stays open; None: never
    double        each PUT is sent twice, as by a gateway that did not hear the first answer: the first answer is dropped"""

    def __init__(self, target=None):
        self.target = target
        self.reset_after, self.piece, self.pieces_for, self.delay, self.stall_after, self.double = None, 65536, 0, 0.0, None, False
        self.resets = self.stalls = self.doubled = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def mend(self):
        self.reset_after, self.piece, self.pieces_for, self.delay, self.stall_after, self.double = None, 65536, 0, 0.0, None, False

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def connect(self):
        if not self.target:
            raise ConnectionError("nobody is there yet")
        host, port = self.target.rsplit(":", 1)
        return socket.create_connection((host, int(port)), timeout=5)

    def serve(self, client):
        try:
            node = self.connect()
        except OSError:
            client.close()
            return
        node.settimeout(None)
        if self.double:
            self.serve_double(client, node)
            return
        state = {"passed": 0, "limit": None}
        back = threading.Thread(target=self.pump, args=(node, client, state), daemon=True)
        back.start()
        self.pump(client, node, state)
        back.join()
        for s in (client, node):
            s.close()

    def pump(self, source, target, state):
        own = 0
        try:
            while True:
                data = source.recv(65536)
                if not data:
                    target.shutdown(socket.SHUT_WR)
                    return
                while data:
                    while self.stall_after is not None and own >= self.stall_after:
                        self.stalls += 1
                        time.sleep(0.05)
                    take = self.piece if own < self.pieces_for else 65536
                    if self.delay:
                        time.sleep(self.delay)
                    elif take < 64:
                        time.sleep(0.0002)
                    now, data = data[:take], data[take:]
                    target.sendall(now)
                    own += len(now)
                    state["passed"] += len(now)
                    if self.reset_after is None:
                        state["limit"] = None
                    elif state["limit"] is None:
                        state["limit"] = state["passed"] + self.reset_after()
                    if state["limit"] is not None and state["passed"] >= state["limit"]:
                        self.resets += 1
                        for s in (source, target):
                            # Lingering for no time makes a reset of the close.
                            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                            s.shutdown(socket.SHUT_RDWR)
                        return
        except OSError:
            for s in (source, target):
                try:
                    s.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    @staticmethod
    def message(s, rest=b""):
        """(one whole HTTP message with a Content-Length, what came after it); (b"", b"") at the end."""
        while b"\r\n\r\n" not in rest:
            more = s.recv(65536)
            if not more:
                return b"", b""
            rest += more
        head, _, body = rest.partition(b"\r\n\r\n")
        length = 0
        for line in head.split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
            if name.lower() == b"expect" and len(body) < length:
                s.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        while len(body) < length:
            more = s.recv(65536)
            if not more:
                return b"", b""
            body += more
        return head + b"\r\n\r\n" + body[:length], body[length:]

    def serve_double(self, client, node):
        rest, answers = b"", b""
        try:
            while True:
                request, rest = self.message(client, rest)
                if not request:
                    break
                # The node would wait for nobody to say "go on".
                request = b"\r\n".join(l for l in request.split(b"\r\n\r\n", 1)[0].split(b"\r\n") if not l.lower().startswith(b"expect")) \
                    + b"\r\n\r\n" + request.split(b"\r\n\r\n", 1)[1]
                for again in (True, False) if request.startswith(b"PUT ") else (False,):
                    node.sendall(request)
                    answer, answers = self.message(node, answers)
                    if again:
                        self.doubled += 1
                client.sendall(answer)
        except OSError:
            pass
        for s in (client, node):
            s.close()


def resets(rng, least, most):
    return lambda: rng.randint(least, most)
