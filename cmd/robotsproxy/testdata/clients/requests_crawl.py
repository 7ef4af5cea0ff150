"""requests_crawl.py START_URL: crawls a host with requests. See crawl.py.

Nothing is set: requests takes the proxy from http_proxy and https_proxy, and what it trusts from REQUESTS_CA_BUNDLE.
"""

import sys

sys.dont_write_bytecode = True  # the folder of the tests stays as it is

import requests  # noqa: E402

from crawl import crawl  # noqa: E402

session = requests.Session()


def fetch(url):
    answer = session.get(url, timeout=60)  # its errors are OSErrors
    return answer.status_code, answer.headers, answer.content


crawl(fetch)
