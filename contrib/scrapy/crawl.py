"""crawl.py URL: crawls a host with Scrapy through robotsproxy, and prints the URL of each page and of each refusal."""

import sys
from urllib.parse import urlsplit

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.exceptions import IgnoreRequest


class Spider(scrapy.Spider):
    name = "crawl"
    allowed_domains = [urlsplit(sys.argv[1]).hostname]

    def start_requests(self):
        yield scrapy.Request(sys.argv[1], errback=self.failed)

    def parse(self, response):
        print("page", response.url)
        yield from response.follow_all(css="a", errback=self.failed)

    def failed(self, failure):
        if failure.check(IgnoreRequest):
            print("refused", failure.request.url, failure.value)


process = CrawlerProcess(
    {
        "DOWNLOADER_MIDDLEWARES": {"robotsproxy_middleware.RobotsproxyMiddleware": 950},
        "ROBOTSTXT_OBEY": False,  # the proxy does
        "RETRY_TIMES": 0,  # a wait is no retry
        "LOG_LEVEL": "ERROR",
    }
)
process.crawl(Spider)
process.start()
