// node_crawl.mjs LIBRARY START_URL PROXY: crawls a host with undici, puppeteer-core or playwright-core, which are in
// node_modules beside this file. It prints what crawl.py prints.
import { createHash } from 'node:crypto'

const [library, start, proxy] = process.argv.slice(2)
const executablePath = 'chromium'
const sandbox = process.getuid() === 0 ? ['--no-sandbox'] : [] // Chromium has no sandbox for root

const open = {
  async undici() {
    const { EnvHttpProxyAgent, setGlobalDispatcher } = await import('undici')
    setGlobalDispatcher(new EnvHttpProxyAgent())
    const get = async url => {
      const response = await fetch(url)
      return [response.status, response.headers.get('robotsproxy-reason'), Buffer.from(await response.arrayBuffer())]
    }
    return [get, () => {}]
  },
  async 'puppeteer-core'() {
    const { default: puppeteer } = await import('puppeteer-core')
    const browser = await puppeteer.launch({ executablePath: await which(), args: [`--proxy-server=${proxy}`, ...sandbox] })
    const page = await browser.newPage()
    const get = async url => {
      const response = await page.goto(url)
      return [response.status(), response.headers()['robotsproxy-reason'], await response.buffer()]
    }
    return [get, () => browser.close()]
  },
  async 'playwright-core'() {
    const { chromium } = await import('playwright-core')
    const browser = await chromium.launch({ executablePath: await which(), proxy: { server: proxy }, args: sandbox })
    const page = await browser.newPage()
    const get = async url => {
      const response = await page.goto(url)
      return [response.status(), response.headers()['robotsproxy-reason'], await response.body()]
    }
    return [get, () => browser.close()]
  },
}

async function which() { // neither library looks for a program in PATH
  const { execFileSync } = await import('node:child_process')
  return execFileSync('which', [executablePath], { encoding: 'utf8' }).trim()
}

const [get, close] = await open[library]()
const queue = [start]
for (const url of queue) { // which grows meanwhile
  const [status, reason, body] = await get(url)
  console.log(JSON.stringify({ url, status, sha256: createHash('sha256').update(body).digest('hex'), reason: reason ?? '' }))
  if (status !== 200) continue
  for (const [, href] of Buffer.from(body).toString().matchAll(/href="(\/[^"]*)"/g)) {
    const link = new URL(href, url).href
    if (!queue.includes(link)) queue.push(link)
  }
}
await close()
