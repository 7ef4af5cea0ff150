"""scrapy_crawl.py START_URL: crawls a host with Scrapy and its defaults, robots.txt not obeyed.

One line of JSON tells of each URL, in the form that crawl.py describes, in the order in which the answers came.

What Scrapy takes from its surroundings (seen in 2.8):

- The proxy comes from http_proxy and https_proxy (HttpProxyMiddleware); a host in no_proxy goes past it. An https URL is
  asked for through CONNECT.
- A host's name goes to the proxy and is resolved there. Scrapy looks up nothing but the proxy itself, so names that no
  DNS knows can be crawled.
- It does not verify certificates (ScrapyClientContextFactory), so it needs no CA and heeds no SSL_CERT_FILE: any proxy
  may intercept it. Verifying is DOWNLOADER_CLIENTCONTEXTFACTORY = "scrapy.core.downloader.contextfactory.BrowserLikeContextFactory",
  which trusts what OpenSSL does, and so SSL_CERT_FILE.
- Defaults that matter to a proxy that makes it wait: 8 requests at once to a domain, each given up after 180 s; an answer
  of 429, 500, 502, 503, 504, 522, 524 or 408, or none, is tried again twice, at once: Retry-After is not heeded.
"""

import sys

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.utils.httpobj import urlparse_cached

sys.dont_write_bytecode = True  # the folder of the tests stays as it is

from crawl import record  # noqa: E402

if len(sys.argv) != 2:
    sys.exit(f"usage: {sys.argv[0]} START_URL")


class Spider(scrapy.Spider):
    """Follows the links of a host, as a CrawlSpider does, from pages of status 200 alone."""

    name = "crawl"

    def start_requests(self):
        # Scrapy's own start_requests would neither report a failure nor know "/" again when a page links to it.
        start = scrapy.Request(sys.argv[1], callback=self.parse, errback=self.failed)
        self.allowed_domains = [urlparse_cached(start).hostname]
        yield start

    def parse(self, response):
        reason = response.headers.get("Robotsproxy-Reason", b"").decode()
        record(response.url, response.status, response.body, reason)
        if response.status == 200 and isinstance(response, scrapy.http.HtmlResponse):
            yield from response.follow_all(css="a", callback=self.parse, errback=self.failed)

    def failed(self, failure):
        record(failure.request.url, 0, b"", "", error=repr(failure.value))


process = CrawlerProcess(
    {
        "ROBOTSTXT_OBEY": False,
        "LOG_LEVEL": "ERROR",
        "HTTPERROR_ALLOW_ALL": True,  # the spider sees every status; redirects and retries stay as they are
    }
)
process.crawl(Spider)
process.start()
