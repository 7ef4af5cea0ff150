"""A Scrapy downloader middleware for crawls through robotsproxy.

    DOWNLOADER_MIDDLEWARES = {"robotsproxy_middleware.RobotsproxyMiddleware": 950}

A refusal of the proxy ends the request with IgnoreRequest, and its errback gets the reason. After a 429 of the proxy the
request waits for Retry-After, and costs no retry. Responses of sites are not changed. At 950 the middleware is before
HttpCacheMiddleware (900), which would store refusals, and RetryMiddleware (550), which repeats a 429 at once.
"""

import re

from scrapy.exceptions import IgnoreRequest
from twisted.internet import reactor
from twisted.internet.task import deferLater

# RFC 9209: only the proxy adds a member of its name, and only its own responses have an error.
REFUSAL = re.compile(r'robotsproxy; error=[^;]+(?:; details="(.*)")?')


class RobotsproxyMiddleware:
    @classmethod
    def from_crawler(cls, crawler):
        middleware = cls()
        middleware.stats = crawler.stats
        return middleware

    def process_response(self, request, response, spider):
        refusal = REFUSAL.match(response.headers.get("Proxy-Status", b"").decode("latin-1"))
        if not refusal or response.status >= 500:
            return response  # of the site, or of a fault, which RetryMiddleware repeats
        reason = response.headers.get("Robotsproxy-Reason", b"").decode("latin-1")
        self.stats.inc_value(f"robotsproxy/{reason}")
        if response.status == 429:
            again = request.replace(dont_filter=True, priority=request.priority + 1)
            return deferLater(reactor, int(response.headers.get("Retry-After", 1)), lambda: again)
        raise IgnoreRequest(refusal[1] or reason)
