/**
 * What every tour of the dashboard shares: a Chromium, the sign-in, and a list of everything that must not happen while
 * pages are used. It knows no page but the first.
 */
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join } from "node:path";

import { chromium } from "playwright-core";

export const WIDE = { width: 1280, height: 1455 };
export const NARROW = { width: 390, height: 844 };

const STEADY_MS = 6_500; // three polls of the overview
const MOST_SHIFT = 0.1; // what web.dev calls good

export function required(name) {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set`);
  return value;
}

export const ADMIN_URL = required("LORIKEET_ADMIN_URL").replace(/\/$/, "");

/** What went wrong, as sentences; `expecting` lets a part of the tour break things on purpose. */
class Faults {
  #found = [];
  #expected = false;

  add(sentence) {
    if (!this.#expected) this.#found.push(sentence);
  }

  async expecting(part) {
    this.#expected = true;
    try {
      return await part();
    } finally {
      this.#expected = false;
    }
  }

  get found() {
    return this.#found;
  }
}

function watch(page, faults) {
  page.on("console", (message) => {
    if (message.type() === "error") faults.add(`console: ${message.text()}`);
  });
  page.on("pageerror", (error) => faults.add(`exception: ${error.message}`));
  page.on("response", (response) => {
    if (response.status() >= 400) faults.add(`${response.status()} for ${new URL(response.url()).pathname}`);
  });
  page.on("requestfailed", (request) => {
    const reason = request.failure()?.errorText ?? "unknown";
    // A poll in flight is cancelled when its page is left.
    if (reason !== "net::ERR_ABORTED") faults.add(`${reason} for ${new URL(request.url()).pathname}`);
  });
}

export async function checkAccessibility(page, name, faults) {
  const source = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
  await page.evaluate(await readFile(source, "utf8"));
  const violations = await page.evaluate(async () => (await window.axe.run(document)).violations);
  for (const { id, help, nodes } of violations) {
    faults.add(`axe on ${name}: ${id} (${help}) at ${nodes.map(({ target }) => target.join(" ")).join(", ")}`);
  }
}

export async function checkWidth(page, name, faults) {
  const excess = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  if (excess > 0) faults.add(`${name} is ${excess} px wider than the screen`);
}

/** Figures change with every poll; nothing else may move. */
export async function holdStill(page, name, faults) {
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
  if (shift > MOST_SHIFT) faults.add(`the page moved by ${shift.toFixed(3)} on ${name}`);
}

async function dismissToasts(page) {
  const dismiss = page.getByRole("button", { name: "Dismiss" });
  while ((await dismiss.count()) > 0) await dismiss.first().click({ timeout: 1_000 }).catch(() => undefined);
  await page.mouse.move(0, 0); // away from whatever lay below and explains itself
  await page.waitForFunction(() => document.querySelector('[role="tooltip"], .mantine-Notification-root') === null);
}

/** For readers of the documentation: as high as what is to be seen. */
export async function pictureOf(page, name, height) {
  await page.setViewportSize({ width: WIDE.width, height });
  await page.waitForTimeout(500); // what fades over has faded
  await picture(page, name);
  await page.setViewportSize(WIDE);
}

/** On wide and narrow screens, in the light scheme and in the dark one: nothing too wide, no violation, and a picture in `looks`. */
export async function lookAtAll(page, name, faults) {
  await dismissToasts(page);
  for (const scheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme: scheme, reducedMotion: "reduce" });
    for (const [size, viewport] of [["wide", WIDE], ["narrow", NARROW]]) {
      await page.setViewportSize(viewport);
      const shown = `${name}-${size}-${scheme}`;
      await checkWidth(page, shown, faults);
      await checkAccessibility(page, shown, faults);
      await picture(page, `looks/${shown}`);
    }
  }
  await page.emulateMedia({ colorScheme: "light", reducedMotion: "reduce" });
  await page.setViewportSize(WIDE);
}

export async function picture(page, name) {
  await page.screenshot({ path: join(required("LORIKEET_SCREENSHOTS"), `${name}.png`) });
}

async function signIn(page, adminUrl) {
  await page.goto(`${adminUrl}/sign-in?token=${encodeURIComponent(required("LORIKEET_OWNER_TOKEN"))}`);
  await page.getByTestId("overview").waitFor();
  if (page.url().includes("token")) throw new Error("the owner token is still in the address bar");
}

/** Runs a tour as the owner, by way of another address if need be; the exit status is 1 when anything went wrong. */
export async function run(tour, adminUrl = ADMIN_URL) {
  const browser = await chromium.launch({
    executablePath: required("LORIKEET_CHROMIUM"),
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
    const faults = new Faults();
    watch(page, faults);
    await signIn(page, adminUrl)
      .then(() => tour(page, faults))
      .catch(async (error) => {
        faults.add(error.message);
        await picture(page, "broken");
      });
    for (const fault of faults.found) console.error(`FAULT ${fault}`);
    if (faults.found.length > 0) process.exitCode = 1;
  } finally {
    await browser.close();
  }
}
