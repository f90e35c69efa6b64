/**
 * Drives the real dashboard in a real Chromium: signs in through the owner link, sees both ledgers, watches a tenant's
 * adapter become ready. Whoever runs it starts the servers, and pushes the adapter once it prints WAITING.
 *
 * Prints "WAITING" when the adapters tab is open and "ADAPTER <state>" on every change of the newest version's state.
 * Exit status 1 on a console error, a failed request, an accessibility violation or a version that is not ready in time.
 */
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join } from "node:path";

import { chromium } from "playwright-core";

const READY_WITHIN_MS = 120_000;
const LOOK_EVERY_MS = 50;

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

async function seeBothLedgers(page) {
  for (const ledger of ["kv-ledger", "arena-ledger"]) {
    await page.getByTestId(ledger).locator('[data-state="sum"]').waitFor();
  }
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
  await seeBothLedgers(page);
  await openAdapters(page);
  console.log("WAITING");
  await watchUntilReady(page);
  await checkAccessibility(page, "adapters", faults);
  await page.screenshot({ path: join(settings.screenshots, "adapters.png") });

  // The overview's picture is taken last, when there is something to see on it.
  const polled = page.waitForResponse((response) => response.url().endsWith("/admin/v1/overview"));
  await page.getByRole("link", { name: "Overview", exact: true }).click();
  await polled;
  await seeBothLedgers(page);
  await checkAccessibility(page, "overview", faults);
  await page.screenshot({ path: join(settings.screenshots, "overview.png") });
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
