"""An application that is told by HTTP when to stop its writes, and where to go on."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

from tests.system.application import Application


@contextmanager
def told(application: Application) -> Iterator[str]:
    """The address that is to be the hook."""
    held = False

    class Asked(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            nonlocal held
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            fences = asked["event"] == "fence"
            if fences and not held:
                application.hold()
            elif held and not fences:
                application.release(asked["primary"])
            held = fences
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Asked) as server:
        # It looks that often whether it is to end.
        thread = threading.Thread(target=server.serve_forever, args=[0.05], daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()
