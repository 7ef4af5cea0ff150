// crawl.mjs URL: crawls a host with Crawlee through robotsproxy, and prints the URL of each page and of each refusal.
import { CheerioCrawler, Configuration, log } from '@crawlee/cheerio'
import { robotsproxy } from './robotsproxy.mjs'

log.setLevel(log.LEVELS.OFF)
const crawler = new CheerioCrawler({
  ...robotsproxy(),
  maxRequestRetries: 0, // a wait is no retry
  async requestHandler({ request, enqueueLinks }) {
    console.log('page', request.url)
    await enqueueLinks()
  },
  failedRequestHandler({ request }, error) {
    console.log('refused', request.url, error.message)
  },
}, new Configuration({ persistStorage: false }))
await crawler.run([process.argv[2]])
