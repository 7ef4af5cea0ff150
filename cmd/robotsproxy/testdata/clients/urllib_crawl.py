"""urllib_crawl.py START_URL: crawls a host with Python's own library. See crawl.py.

Nothing is set: urllib takes the proxy from http_proxy and https_proxy, and what it trusts from SSL_CERT_FILE. Each
request has a connection, and each to an https URL a tunnel, of its own.
"""

import http.client
import sys
import urllib.error
import urllib.request

sys.dont_write_bytecode = True  # the folder of the tests stays as it is

from crawl import crawl  # noqa: E402


def fetch(url):
    try:
        answer = urllib.request.urlopen(url, timeout=60)
    except urllib.error.HTTPError as error:  # an answer too, of status 400 or more
        answer = error
    with answer:
        try:
            return answer.status, answer.headers, answer.read()
        except http.client.HTTPException as error:
            raise OSError(repr(error)) from error


crawl(fetch)
