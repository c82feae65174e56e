// Opens pages of the built site in Chromium: broken links, errors of the console, pages wider than a phone, and axe's
// rules of accessibility, on light and on dark pages. `node docs/site/check.mjs build/site [pictures]`; needs the npm
// packages playwright-core and axe-core, and a Chromium at CHROMIUM (/usr/bin/chromium).
import fs from 'node:fs'
import http from 'node:http'
import path from 'node:path'
import { createRequire } from 'node:module'

const require = createRequire(path.join(process.cwd(), 'build', 'node_modules', 'x.js'))
const { chromium } = require('playwright-core')
const axe = fs.readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8')
const [site, pictures] = process.argv.slice(2)
const PAGES = ['index', 'tutorial/index', 'how/index', 'how/write-a-loop-backend', 'spec/index', 'spec/search',
  'spec/activations/gelu', 'reference/index', 'reference/keel.plugin', 'architecture', 'adr/index', 'benchmarks/plots',
  'benchmarks/index', 'conformance/harness', 'findings', 'search']
const problems = []

// -- links, of every page, without a browser --
const files = fs.readdirSync(site, { recursive: true }).filter(f => f.endsWith('.html'))
const ids = new Map(files.map(f => [f, new Set([...fs.readFileSync(path.join(site, f), 'utf8')
  .matchAll(/\sid="([^"]+)"/g)].map(m => m[1]))]))
let links = 0
for (const file of files) {
  const text = fs.readFileSync(path.join(site, file), 'utf8')
  for (const [, raw] of text.matchAll(/\s(?:href|src)="([^"]+)"/g)) {
    const link = raw.replaceAll('&amp;', '&')
    if (/^(\w+:|\/\/)/.test(link)) continue
    links += 1
    const [target, anchor] = link.split('?')[0].split('#')
    const full = target ? path.normalize(path.join(path.dirname(file), decodeURIComponent(target))) : file
    if (!fs.existsSync(path.join(site, full))) problems.push(`${file}: ${link} leads nowhere`)
    else if (link.includes('#') && anchor && ids.has(full) && !ids.get(full).has(decodeURIComponent(anchor)))
      problems.push(`${file}: ${link} has no such section`)
  }
}
console.log(`${links} links on ${files.length} pages`)

// -- pages in the browser --
const TYPES = { html: 'text/html', js: 'text/javascript', css: 'text/css', svg: 'image/svg+xml', json: 'application/json' }
const server = http.createServer((request, response) => {
  const file = path.join(site, decodeURIComponent(request.url.split('?')[0]))
  if (!fs.existsSync(file) || fs.statSync(file).isDirectory()) return response.writeHead(404).end()
  response.writeHead(200, { 'content-type': TYPES[file.split('.').pop()] ?? 'application/octet-stream' })
  response.end(fs.readFileSync(file))
}).listen(0, '127.0.0.1')
await new Promise(resolve => server.once('listening', resolve))
const root = `http://127.0.0.1:${server.address().port}`
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync']
})
for (const [width, colorScheme] of [[1280, 'light'], [1280, 'dark'], [390, 'light'], [390, 'dark']]) {
  const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme })
  for (const name of PAGES) {
    const page = await context.newPage()
    const at = `${name} (${width}, ${colorScheme})`
    page.on('console', m => m.type() === 'error' && problems.push(`${at}: ${m.text()}`))
    page.on('pageerror', error => problems.push(`${at}: ${error}`))
    page.on('requestfailed', request => problems.push(`${at}: ${request.url()} failed`))
    page.on('request', r => r.url().startsWith(root) || r.url().startsWith('data:') || problems.push(`${at}: loads ${r.url()}`))
    await page.goto(`${root}/${name}.html`)
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth)
    if (wide > 0) problems.push(`${at}: ${wide} pixels too wide`)
    await page.evaluate(axe)
    const { violations, passes } = await page.evaluate(() => window.axe.run())
    const weight = { minor: 1, moderate: 3, serious: 7, critical: 10 }
    const sum = rules => rules.reduce((total, rule) => total + (weight[rule.impact] ?? 7), 0)
    const score = Math.round(100 * sum(passes) / (sum(passes) + sum(violations)))
    for (const v of violations)
      console.log(`  ${at}: ${v.id} (${v.impact}), ${v.nodes.length} times: ${v.nodes[0].html.slice(0, 150)}`)
    console.log(`${at}: ${score} of 100`)
    if (score < 95) problems.push(`${at}: accessibility ${score}`)
    if (pictures) {
      fs.mkdirSync(pictures, { recursive: true })
      await page.screenshot({ path: path.join(pictures, `${name.replaceAll('/', '-')}-${width}-${colorScheme}.png`) })
    }
    await page.close()
  }
  await context.close()
}
await browser.close()
server.close()
console.log(problems.length ? problems.join('\n') : 'No problem.')
process.exit(problems.length ? 1 : 0)
