/**
 * Drives the real dashboard in a real Chromium: sees every panel of the overview, watches a tenant's adapter become
 * ready, then the engine at work, on a wide and on a narrow screen. Whoever runs it starts the servers, and pushes the
 * adapter once it prints WAITING.
 *
 * Prints "WAITING" when the adapters tab is open and "ADAPTER <state>" on every change of the newest version's state.
 * Exit status 1 on a console error, a failed request, an accessibility violation, a version that is not ready in time, a page
 * that moves under its reader, one that is wider than the screen, or a pool whose parts do not add up.
 */
import { checkAccessibility, checkWidth, holdStill, NARROW, picture, pictureOf, required, run, WIDE } from "./page.mjs";

const READY_WITHIN_MS = 120_000;
const LOOK_EVERY_MS = 50;
const PANELS = ["queues", "residency", "prefix", "refusals", "preemptions", "known-adapters"];
const POOLS = ["kv-ledger", "arena-ledger", "host-ledger"];

const settings = { tenant: required("LORIKEET_TENANT"), adapter: required("LORIKEET_ADAPTER") };

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

async function openAdapters(page) {
  await page.getByRole("link", { name: "Tenants", exact: true }).click();
  await page.getByTestId(`tenant-row-${settings.tenant}`).getByRole("link").click();
  const listed = page.waitForResponse((response) => new URL(response.url()).pathname.endsWith("/adapters"));
  await page.getByRole("tab", { name: "Adapters" }).click();
  await listed;
  await page.getByTestId("adapters").waitFor();
}

/** An adapter's row has the badge of its newest version, the one that is being validated. */
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
  await seeOverview(page);
  await openAdapters(page);
  console.log("WAITING");
  await watchUntilReady(page);
  await checkAccessibility(page, "adapters", faults);
  await picture(page, "adapters");

  // The overview comes last, when there is something to see on it.
  const polled = page.waitForResponse((response) => response.url().endsWith("/admin/v1/overview"));
  await page.getByRole("link", { name: "Overview", exact: true }).click();
  await polled;
  await page.getByTestId(`queue-${settings.tenant}`).waitFor();
  await page.setViewportSize(WIDE);
  await holdStill(page, "the wide overview", faults);
  await pictureOf(page, "overview", 1490);
  await seeOverview(page);
  await explainByKeyboard(page, faults);

  await page.setViewportSize(NARROW);
  await holdStill(page, "the narrow overview", faults);
  await checkWidth(page, "the narrow overview", faults);
  await checkAccessibility(page, "the narrow overview", faults);
}

await run(tour);
