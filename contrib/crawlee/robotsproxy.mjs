// Options for the HTTP crawlers of Crawlee (HttpCrawler, CheerioCrawler and others) behind robotsproxy:
//
//     const crawler = new CheerioCrawler({ ...robotsproxy(), async requestHandler({ $, enqueueLinks }) { ... } })
//
// A refusal of the proxy ends the request at once, and failedRequestHandler gets the reason. Without these options, Crawlee
// repeats a 403 three times.
import { setTimeout as sleep } from 'node:timers/promises'
import { NonRetryableError, ProxyConfiguration, RetryRequestError } from '@crawlee/core'

// RFC 9209: only the proxy's own responses have an error in its member.
const refusal = /^robotsproxy; error=[^;]+(?:; details="(.*)")?/

export function robotsproxy(proxyUrl = process.env.https_proxy) {
  return {
    proxyConfiguration: new ProxyConfiguration({ proxyUrls: [proxyUrl] }), // Crawlee reads no variables
    ignoreSslErrors: false, // NODE_EXTRA_CA_CERTS names the CA
    navigationTimeoutSecs: 180, // longer than pacing.max_wait, for which the proxy holds a request
    postNavigationHooks: [async ({ response }) => {
      const refused = refusal.exec(response.headers['proxy-status'] ?? '')
      if (!refused || response.statusCode >= 500) return // Crawlee repeats what is due to a fault
      if (response.statusCode !== 429) throw new NonRetryableError(refused[1])
      await sleep(1000 * Math.min(Number(response.headers['retry-after']) || 1, 60)) // a hook may take as long as a page
      throw new RetryRequestError(refused[1]) // costs no retry
    }],
  }
}
