/**
 * Drives the real dashboard in a real Chromium: signs in through the owner link, sees every panel of the overview,
 * watches a tenant's adapter become ready, then the engine at work, on a wide and on a narrow screen. Whoever runs it starts the servers, and pushes the adapter once it prints WAITING.
 *
 * Prints "WAITING" when the adapters tab is open and "ADAPTER <state>" on every change of the newest version's state.
 * Exit status 1 on a console error, a failed request, an accessibility violation, a version that is not ready in time, a page
 * that moves under its reader, one that is wider than the screen, or a pool whose parts do not add up.
 */
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join } from "node:path";

import { chromium } from "playwright-core";

const READY_WITHIN_MS = 120_000;
const LOOK_EVERY_MS = 50;
const STEADY_MS = 6_500; // three polls
const MOST_SHIFT = 0.1; // what web.dev calls good
const WIDE = { width: 1280, height: 1455 };
const NARROW = { width: 390, height: 844 };
const PANELS = ["queues", "residency", "prefix", "refusals", "preemptions", "known-adapters"];
const POOLS = ["kv-ledger", "arena-ledger", "host-ledger"];

function required(name) {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set`);
  return value;
}

const settings = {
  adminUrl: required("LORIKEET_ADMIN_URL").replace(/\/$/, ""),
  ownerToken: required("LORIKEET_OWNER_TOKEN"),
  tenant: required("LORIKEET_TENANT"),
  adapter: required("LORIKEET_ADAPTER"),
  screenshots: required("LORIKEET_SCREENSHOTS"),
  chromium: required("LORIKEET_CHROMIUM"),
};

/** Everything that must not happen while the pages are used, as sentences. */
function watchForFaults(page) {
  const faults = [];
  page.on("console", (message) => {
    if (message.type() === "error") faults.push(`console: ${message.text()}`);
  });
  page.on("pageerror", (error) => faults.push(`exception: ${error.message}`));
  page.on("response", (response) => {
    if (response.status() >= 400) faults.push(`${response.status()} for ${new URL(response.url()).pathname}`);
  });
  page.on("requestfailed", (request) => {
    const reason = request.failure()?.errorText ?? "unknown";
    // A poll in flight is cancelled when its page is left.
    if (reason !== "net::ERR_ABORTED") faults.push(`${reason} for ${new URL(request.url()).pathname}`);
  });
  return faults;
}

async function checkAccessibility(page, name, faults) {
  const source = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
  await page.evaluate(await readFile(source, "utf8"));
  const violations = await page.evaluate(async () => (await window.axe.run(document)).violations);
  for (const { id, help, nodes } of violations) {
    faults.push(`axe on ${name}: ${id} (${help}) at ${nodes.map(({ target }) => target.join(" ")).join(", ")}`);
  }
}

async function signIn(page) {
  await page.goto(`${settings.adminUrl}/sign-in?token=${encodeURIComponent(settings.ownerToken)}`);
  await page.getByTestId("overview").waitFor();
  if (page.url().includes("token")) throw new Error("the owner token is still in the address bar");
}

/** The panels are there and every pool's tenants and free part add up to the byte. */
async function seeOverview(page) {
  for (const panel of PANELS) await page.getByTestId(panel).waitFor();
  for (const pool of POOLS) {
    const ledger = page.getByTestId(pool);
    await ledger.locator('[data-holder="sum"]').waitFor();
    const bytes = (holder) => ledger.locator(holder).evaluateAll((cells) => cells.map((cell) => Number(cell.dataset.bytes)));
    const [parts, [sum]] = [await bytes('[data-holder]:not([data-holder="sum"])'), await bytes('[data-holder="sum"]')];
    const states = await bytes("[data-state]");
    const total = (numbers) => numbers.reduce((all, n) => all + n, 0);
    if (total(parts) !== sum || total(states) !== sum) throw new Error(`${pool} does not add up: ${parts}; ${states}; ${sum}`);
  }
}

/** A term that is reached by keyboard explains itself, and the open explanation is as accessible as the rest. */
async function explainByKeyboard(page, faults) {
  const term = page.getByTestId("residency").getByRole("button", { name: "Draining" });
  await page.getByTestId("residency").getByRole("button", { name: "Resident" }).focus();
  await page.keyboard.press("Tab");
  if (!(await term.evaluate((element) => element === document.activeElement))) throw new Error("Tab skips a term");
  await page.getByRole("tooltip").waitFor();
  await checkAccessibility(page, "the wide overview", faults);
  await term.blur();
}

/** Figures change with every poll; nothing else may move. */
async function holdStill(page, name, faults) {
  const shift = await page.evaluate(async (duration) => {
    let sum = 0;
    const observer = new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) sum += entry.value;
    });
    observer.observe({ type: "layout-shift" });
    await new Promise((resolve) => setTimeout(resolve, duration));
    observer.disconnect();
    return sum;
  }, STEADY_MS);
  if (shift > MOST_SHIFT) faults.push(`the page moved by ${shift.toFixed(3)} on ${name}`);
}

async function checkWidth(page, name, faults) {
  const excess = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  if (excess > 0) faults.push(`${name} is ${excess} px wider than the screen`);
}

async function openAdapters(page) {
  await page.getByRole("link", { name: "Tenants", exact: true }).click();
  const listed = page.waitForResponse((response) => new URL(response.url()).pathname.endsWith("/adapters"));
  await page.getByTestId(`tenant-row-${settings.tenant}`).getByRole("link").click();
  await listed;
  await page.getByTestId("adapters").waitFor();
}

/** Versions are drawn newest first, so the first badge is the one that is being validated. */
async function watchUntilReady(page) {
  const badge = page.locator(`[data-testid^="version-state-${settings.adapter}-"]`).first();
  const deadline = Date.now() + READY_WITHIN_MS;
  let last = null;
  while (last !== "ready") {
    const state = (await badge.count()) === 0 ? "absent" : await badge.getAttribute("data-state");
    if (state !== last) console.log(`ADAPTER ${state}`);
    last = state;
    if (state === "rejected" || state === "failed_internal") throw new Error(`the version ended ${state}`);
    if (Date.now() > deadline) throw new Error(`the version is not ready after ${READY_WITHIN_MS / 1000} s`);
    await page.waitForTimeout(LOOK_EVERY_MS);
  }
}

async function tour(page, faults) {
  await signIn(page);
  await seeOverview(page);
  await openAdapters(page);
  console.log("WAITING");
  await watchUntilReady(page);
  await checkAccessibility(page, "adapters", faults);
  await page.screenshot({ path: join(settings.screenshots, "adapters.png") });

  // The overview comes last, when there is something to see on it.
  const polled = page.waitForResponse((response) => response.url().endsWith("/admin/v1/overview"));
  await page.getByRole("link", { name: "Overview", exact: true }).click();
  await polled;
  await page.getByTestId(`queue-${settings.tenant}`).waitFor();
  await page.setViewportSize(WIDE);
  await holdStill(page, "the wide overview", faults);
  await page.screenshot({ path: join(settings.screenshots, "overview.png") });
  await seeOverview(page);
  await explainByKeyboard(page, faults);

  await page.setViewportSize(NARROW);
  await holdStill(page, "the narrow overview", faults);
  await checkWidth(page, "the narrow overview", faults);
  await checkAccessibility(page, "the narrow overview", faults);
}

const browser = await chromium.launch({
  executablePath: settings.chromium,
  args: [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
  ],
});
try {
  const page = await browser.newPage({ viewport: { width: 1280, height: 800 }, reducedMotion: "reduce" });
  const faults = watchForFaults(page);
  await tour(page, faults).catch((error) => faults.push(error.message));
  for (const fault of faults) console.error(`FAULT ${fault}`);
  if (faults.length > 0) process.exitCode = 1;
} finally {
  await browser.close();
}
