// Opens the built site in Chromium, at desktop and phone size. Every page of the menu must load its
// pictures and fit the screen, and the search must find the expected pages. Writes screenshots of
// three pages to build/site-pictures. "make test-site" calls it; CHROMIUM selects another browser.
import { createServer } from "node:http";
import { mkdir, readFile } from "node:fs/promises";
import { extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "../../client-web/node_modules/playwright-core/index.mjs";

const root = fileURLToPath(new URL("../../build/site", import.meta.url));
const pictures = fileURLToPath(new URL("../../build/site-pictures", import.meta.url));
const screens = {
  desktop: { viewport: { width: 1280, height: 800 } },
  phone: { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true, colorScheme: "dark" },
};
const shown = ["index.html", "install.html", "troubleshoot.html"];
// Search terms, each with a page that must be among the first five results.
const searches = {
  "duplicate packets": "duplication.html",
  "extrinsics": "architecture.html",
  "libk4a": "publish-from-a-kinect.html",
  "certbot": "run-a-relay-on-the-internet.html",
  "holocast_relay_dropped_subgroups_total": "metrics.html",
};

const types = {
  ".html": "text/html",
  ".js": "text/javascript",
  ".css": "text/css",
  ".json": "application/json",
  ".svg": "image/svg+xml",
  ".png": "image/png",
  ".jpg": "image/jpeg",
};
const server = createServer(async (request, response) => {
  const path = normalize(decodeURIComponent(new URL(request.url, "http://site").pathname));
  try {
    const body = await readFile(join(root, path.endsWith("/") ? `${path}index.html` : path));
    response.writeHead(200, { "content-type": types[extname(path) || ".html"] ?? "text/plain" }).end(body);
  } catch {
    response.writeHead(404).end();
  }
});
await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
const site = `http://127.0.0.1:${server.address().port}/`;

const wrong = [];
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox"],
});
try {
  await mkdir(pictures, { recursive: true });
  let pages = 0;
  for (const [screen, options] of Object.entries(screens)) {
    const page = await (await browser.newContext(options)).newPage();
    page.setDefaultTimeout(120_000);
    await page.goto(site);
    const menu = await page.$$eval(".md-nav--primary a.md-nav__link", (links) => [...new Set(links.map((a) => a.href.split("#")[0]))]);
    pages = menu.length;
    for (const url of menu) {
      await page.goto(url);
      const name = url.slice(site.length) || "index.html";
      const faults = await page.evaluate(async (width) => {
        const images = [...document.querySelectorAll("article img")];
        for (const image of images) image.loading = "eager";
        const shown = await Promise.all(
          images.map((image) => image.decode().then(() => "", () => `does not show ${image.src}`)),
        );
        const wider = document.documentElement.scrollWidth - width;
        return [...shown.filter((fault) => fault), ...(wider > 0 ? [`is ${wider} pixels wider than the screen`] : [])];
      }, options.viewport.width);
      wrong.push(...faults.map((fault) => `${name} ${fault} (${screen})`));
      if (shown.includes(name)) {
        await page.screenshot({ path: join(pictures, `${screen}-${name.replace(".html", ".png")}`) });
      }
    }
    await page.context().close();
  }
  const page = await browser.newPage();
  page.setDefaultTimeout(120_000);
  for (const [words, wanted] of Object.entries(searches)) {
    await page.goto(site);
    await page.click(".md-search__input"); // loads the index
    await page.waitForFunction(() => !/^\s*$|Initializing/.test(document.querySelector(".md-search-result__meta").textContent));
    await page.keyboard.type(words);
    // Results update per key; those for the complete word come last.
    const answers = () =>
      page.$$eval(".md-search-result__item > .md-search-result__link", (links) =>
        links.slice(0, 5).map((a) => new URL(a.href).pathname.slice(1)),
      );
    let found = [];
    for (const end = Date.now() + 30_000; !found.includes(wanted) && Date.now() < end; found = await answers()) {
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    if (!found.includes(wanted)) wrong.push(`search for ${words}: ${found.join(", ") || "nothing"}, not ${wanted}`);
  }
  console.log(`${pages} pages on ${Object.keys(screens).join(" and ")}, ${Object.keys(searches).length} searches, ${wrong.length} faults; pictures in build/site-pictures`);
} finally {
  await browser.close();
  server.close();
}
for (const fault of wrong) console.error(fault);
process.exitCode = wrong.length ? 1 : 0;
