"""What requests_crawl.py and urllib_crawl.py share: a crawl of one host, one page after the other.

A client is a function from a URL to (status, header, body), where header has a get method, which raises OSError where
there is no answer. It is called once for every URL that a page of status 200 links to on the host of the first one. One
line of JSON tells of each, in the order fetched:

    {"url": ..., "status": ..., "sha256": hex of the body, "reason": the field Robotsproxy-Reason or ""}

Where there was no answer, status is 0 and a key "error" says why.
"""

import hashlib
import html.parser
import json
import sys
import urllib.parse


class Links(html.parser.HTMLParser):
    """Gathers the href of every <a>."""

    def __init__(self, page):
        super().__init__()
        self.found = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        if tag == "a":
            self.found += [value for name, value in attrs if name == "href" and value]


def record(url, status, body, reason, **more):
    """Prints the line of JSON for one URL."""
    line = {"url": url, "status": status, "sha256": hashlib.sha256(body).hexdigest(), "reason": reason}
    print(json.dumps({**line, **more}), flush=True)


def crawl(fetch):
    """Crawls from the URL on the command line."""
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} START_URL")
    queue = [sys.argv[1]]
    host = urllib.parse.urlsplit(queue[0]).netloc
    for url in queue:  # which grows meanwhile
        try:
            status, header, body = fetch(url)
        except OSError as error:
            record(url, 0, b"", "", error=repr(error))
            continue
        record(url, status, body, header.get("Robotsproxy-Reason", ""))
        if status == 200 and header.get("Content-Type", "").startswith("text/html"):
            links = [urllib.parse.urljoin(url, href) for href in Links(body.decode()).found]
            new = [link for link in dict.fromkeys(links) if link not in queue]
            queue += [link for link in new if urllib.parse.urlsplit(link).netloc == host]
