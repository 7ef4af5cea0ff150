"""scrapy_get.py URL: prints the status and reason of the response, or the error, as a spider of Scrapy sees it."""

import sys

import scrapy
from scrapy.crawler import CrawlerProcess


class Spider(scrapy.Spider):
    name = "get"

    def start_requests(self):
        yield scrapy.Request(sys.argv[1], callback=self.parse, errback=self.failed)

    def parse(self, response):
        print(response.status, response.headers.get("Robotsproxy-Reason", b"").decode())

    def failed(self, failure):
        print(repr(failure.value))


process = CrawlerProcess({"ROBOTSTXT_OBEY": False, "LOG_LEVEL": "CRITICAL", "HTTPERROR_ALLOW_ALL": True})
process.crawl(Spider)
process.start()
