/**
 * Walks an adapter through its whole life in a real Chromium, as an owner would: an upload whose line is cut and whose
 * page is reloaded, its certificate, a second version, a canary, promotion and rollback, quarantine and release, retirement,
 * restoration and deletion.
 *
 * Prints "DONE <part>" after each part. Exit status 1 on whatever `page.mjs` watches for, or when a part ends otherwise.
 */
import { createHash } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";

import { Line } from "./line.mjs";
import { ADMIN_URL, checkAccessibility, checkWidth, NARROW, picture, required, run } from "./page.mjs";

const READY_WITHIN_MS = 180_000;
const GONE_WITHIN_MS = 60_000;
const SLOW_BYTES_PER_S = 200_000;
const POLL_MS = 3_000; // the slowest poll of these pages

const tenant = required("LORIKEET_TENANT");
const name = required("LORIKEET_ADAPTER");
const [first, second] = [required("LORIKEET_FIRST_FILES"), required("LORIKEET_SECOND_FILES")];

const adapterAddress = `/tenants/${tenant}/adapters/${name}`;
const api = `/admin/v1${adapterAddress}`;
const weights = "adapter_model.safetensors";

function need(condition, sentence) {
  if (!condition) throw new Error(sentence);
}

function done(part) {
  console.log(`DONE ${part}`);
}

async function filesOf(folder) {
  const names = (await readdir(folder)).toSorted();
  return Promise.all(names.map(async (each) => ({ name: each, bytes: await readFile(join(folder, each)) })));
}

async function drop(page, folder) {
  const files = (await filesOf(folder)).map(({ name: each, bytes }) => ({ name: each, base64: bytes.toString("base64") }));
  const transfer = await page.evaluateHandle((given) => {
    const carried = new DataTransfer();
    for (const { name: each, base64 } of given) {
      const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
      carried.items.add(new File([bytes], each));
    }
    return carried;
  }, files);
  await page.getByTestId("drop-zone").dispatchEvent("drop", { dataTransfer: transfer });
  await page.getByTestId(`chosen-${weights}`).waitFor();
}

/** How fast the browser may send; -1 = as it likes. */
async function limitUploads(page, bytesPerSecond) {
  const devtools = await page.context().newCDPSession(page);
  await devtools.send("Network.enable");
  const conditions = { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput: bytesPerSecond };
  await devtools.send("Network.emulateNetworkConditions", conditions);
  return devtools;
}

async function sentBytes(page) {
  return Number(await page.getByTestId(`chosen-${weights}`).getAttribute("data-sent"));
}

async function waitForSent(page, bytes) {
  const row = `[data-testid="chosen-${weights}"]`;
  await page.waitForFunction(([at, least]) => Number(document.querySelector(at)?.dataset.sent) >= least, [row, bytes]);
}

async function waitForPhase(page, phase) {
  await page.locator(`[data-phase="${phase}"]`).waitFor();
}

async function waitForState(page, number, state) {
  const badge = page.locator(`[data-testid="version-state-${name}-${number}"]`).first();
  const settled = page.locator(
    ["ready", "rejected", "failed_internal", state].map((each) => `[data-testid="version-state-${name}-${number}"][data-state="${each}"]`).join(", "),
  );
  await settled.first().waitFor({ timeout: READY_WITHIN_MS });
  await page.locator(`[data-testid="version-state-${name}-${number}"][data-state="${state}"]`).first().waitFor().catch(async () => {
    throw new Error(`version ${number} is ${await badge.getAttribute("data-state")}, not ${state}`);
  });
}

/** The line goes while the weights are on their way, comes back, and then the page is loaded anew. */
async function uploadWithCuts(page, faults, line) {
  await page.getByRole("link", { name: "Tenants", exact: true }).click();
  await page.getByTestId(`tenant-row-${tenant}`).getByRole("link").click();
  await page.getByRole("tab", { name: "Adapters" }).click();
  await page.getByRole("link", { name: "Upload adapter" }).click();
  await page.getByRole("textbox", { name: "Adapter" }).fill(name);
  await checkAccessibility(page, "the empty upload page", faults);
  await drop(page, first);
  const stays = await page.getByTestId("not-sent").textContent();
  need(stays.includes("training.json"), `training.json is not among what stays: ${stays}`);

  const limited = await limitUploads(page, SLOW_BYTES_PER_S);
  await page.getByRole("button", { name: "Upload", exact: true }).click();
  await waitForSent(page, 200_000);
  await page.getByRole("button", { name: "Pause" }).click();
  await waitForPhase(page, "paused");
  await page.getByRole("button", { name: "Resume" }).click();
  await waitForSent(page, 400_000);
  await faults.expecting(async () => {
    line.cut();
    await waitForPhase(page, "interrupted");
    await picture(page, "upload-interrupted");
    line.mend();
    await waitForPhase(page, "sending");
    await page.waitForTimeout(POLL_MS);
  });
  await waitForSent(page, 800_000);
  const before = await sentBytes(page);
  await picture(page, "upload-sending");
  await page.reload();
  return { limited, before };
}

async function resume(page, faults, { limited, before }) {
  const notice = page.getByTestId("started-earlier");
  await notice.waitFor();
  need((await notice.textContent()).includes(weights), "the upload that broke off is not offered");
  await checkAccessibility(page, "an upload that broke off", faults);
  await drop(page, first);
  await picture(page, "upload-resumed");
  await page.getByRole("button", { name: "Upload", exact: true }).click();
  await page.waitForFunction((at) => Number(document.querySelector(at)?.dataset.resumed) > 0, `[data-testid="chosen-${weights}"]`);
  const resumedAt = Number(await page.getByTestId(`chosen-${weights}`).getAttribute("data-resumed"));
  need(resumedAt > before / 2, `of ${before} bytes sent before the reload only ${resumedAt} were kept`);
  await limited.detach();
  await page.getByTestId("outcome").waitFor();
  await waitForState(page, 1, "ready");
  await checkAccessibility(page, "the outcome of an upload", faults);
  await picture(page, "upload-ready");
}

/** Byte for byte what was dropped, however often it was cut. */
async function compareFiles(page) {
  for (const { name: filename, bytes } of await filesOf(first)) {
    if (filename === "training.json") continue;
    const stored = await page.evaluate(async (address) => {
      const response = await fetch(address);
      const digest = response.headers.get("x-lorikeet-sha256");
      return { digest, length: (await response.arrayBuffer()).byteLength };
    }, `${api}/versions/1/files/${filename}`);
    const wanted = createHash("sha256").update(bytes).digest("hex");
    need(stored.digest === wanted && stored.length === bytes.length, `${filename} is not what was sent`);
  }
}

async function readCertificate(page, faults) {
  await page.getByTestId("outcome").getByRole("link", { name: "Version 1" }).click();
  const certificate = page.getByTestId("certificate");
  await certificate.waitFor();
  const parity = await page.getByTestId("parity").textContent();
  need(/\d/.test(parity), `no figure of parity: ${parity}`);
  const neighbours = await page.getByTestId("neighbours").textContent();
  need(neighbours.includes("unchanged") && neighbours.includes("alike in the engine"), `neighbours: ${neighbours}`);
  await page.getByTestId(`file-${weights}`).waitFor();
  await page.getByTestId("obstacle").waitFor();
  await compareFiles(page);
  await checkAccessibility(page, "a version", faults);
  await page.setViewportSize({ width: 1280, height: 1400 });
  await picture(page, "version");
  await page.setViewportSize(NARROW);
  await checkWidth(page, "the narrow version", faults);
  await picture(page, "version-narrow");
  await page.setViewportSize({ width: 1280, height: 800 });
}

async function uploadSecond(page) {
  await page.locator(`a[href="${adapterAddress}"]`).first().click();
  await page.getByRole("link", { name: "Upload version" }).click();
  const chosen = ["adapter_config.json", weights].map((each) => join(second, each));
  await page.locator('input[type="file"]').setInputFiles(chosen);
  await page.getByRole("button", { name: "Upload", exact: true }).click();
  await page.getByTestId("outcome").waitFor({ timeout: READY_WITHIN_MS });
  await waitForState(page, 2, "ready");
  await page.getByTestId("outcome").getByRole("link", { name, exact: true }).click();
  await page.getByTestId("versions").waitFor();
}

async function waitForShares(page, shares) {
  for (const [version, weight] of Object.entries(shares)) {
    await page.locator(`[data-testid="alias-live"] [data-target="${version}"][data-weight="${weight}"]`).waitFor();
  }
  const shown = await page.getByTestId("alias-live").locator("[data-target]").count();
  need(shown === Object.keys(shares).length, `live has ${shown} targets`);
}

async function revisionOfLive(page) {
  return Number(await page.getByTestId("alias-live").getAttribute("data-revision"));
}

function inDialog(page, verb) {
  return page.getByRole("dialog").getByRole("button", { name: verb, exact: true });
}

async function canaryAndBack(page, faults) {
  const live = page.getByTestId("alias-live");
  await waitForShares(page, { 1: 100 });
  await live.getByRole("button", { name: "Start canary" }).click();
  await inDialog(page, "10 %").click();
  await checkAccessibility(page, "the editor of an alias", faults);
  await picture(page, "canary");
  await inDialog(page, "Save").click();
  await waitForShares(page, { 1: 90, 2: 10 });
  const canary = await revisionOfLive(page);
  await page.setViewportSize({ width: 1280, height: 1000 });
  await live.getByRole("button", { name: "History" }).click();
  await page.getByTestId(`revision-live-${canary}`).waitFor();
  await checkAccessibility(page, "an adapter", faults);
  await picture(page, "adapter");
  await page.setViewportSize({ width: 1280, height: 800 });

  await live.getByRole("button", { name: "Promote 2" }).click();
  await inDialog(page, "Promote").click();
  await waitForShares(page, { 2: 100 });
  await live.getByRole("button", { name: `Roll back to this: revision ${canary} of live` }).click();
  await inDialog(page, "Roll back").click();
  await waitForShares(page, { 1: 90, 2: 10 });
}

/** Somebody else moves the alias while the editor is open. */
async function conflict(page, faults) {
  await page.getByRole("button", { name: "Edit alias live" }).click();
  await inDialog(page, "Save").waitFor();
  await page.evaluate(async (address) => {
    const { csrf_token: token } = await (await fetch("/auth/session")).json();
    await fetch(address, {
      method: "PUT",
      headers: { "Content-Type": "application/json", "X-CSRF-Token": token },
      body: JSON.stringify({ targets: [{ version: 1, weight: 75 }, { version: 2, weight: 25 }], reason: "somebody else" }),
    });
  }, `${api}/aliases/live`);
  await faults.expecting(async () => {
    await inDialog(page, "Save").click();
    await page.getByTestId("conflict").waitFor();
  });
  const told = await page.getByTestId("conflict").textContent();
  need(told.includes("version 2 (25 %)"), `the conflict does not say what changed: ${told}`);
  await picture(page, "conflict");
  await inDialog(page, "Cancel").click();
  await waitForShares(page, { 1: 75, 2: 25 });
}

async function takeStep(page, number, label, reason) {
  await page.getByRole("button", { name: `Steps for version ${number}` }).click();
  await page.getByRole("menuitem", { name: label, exact: true }).click();
  if (reason) await page.getByRole("textbox", { name: "Reason" }).fill(reason);
  await inDialog(page, label).click();
  await page.getByRole("dialog").waitFor({ state: "detached" });
}

async function quarantineAndRelease(page, faults) {
  await takeStep(page, 2, "Quarantine", "it leaks names");
  await waitForState(page, 2, "quarantined");
  await waitForShares(page, { 1: 100 });
  await page.getByTestId("versions").getByRole("link", { name: "Version 2" }).click();
  const since = page.getByTestId("since");
  await since.waitFor();
  need((await since.textContent()).includes("it leaks names"), "the reason of the quarantine is not shown");
  await checkAccessibility(page, "a quarantined version", faults);
  await picture(page, "quarantined");
  await page.getByRole("button", { name: "Release" }).click();
  await inDialog(page, "Release").click();
  await waitForState(page, 2, "ready");
  await page.goBack();
}

async function retireRestoreDelete(page, faults) {
  await page.getByRole("button", { name: "Steps for version 1" }).click();
  const blocked = page.getByRole("menuitem", { name: /Retire/ });
  need((await blocked.textContent()).includes("live points at it"), "nothing says why version 1 can't be retired");
  await checkAccessibility(page, "the steps of a version", faults);
  await picture(page, "steps");
  await page.keyboard.press("Escape");
  await page.getByRole("menu").waitFor({ state: "detached" });
  await takeStep(page, 2, "Retire", "replaced");
  await waitForState(page, 2, "retired");
  await takeStep(page, 2, "Restore");
  await waitForState(page, 2, "ready");
  await takeStep(page, 2, "Delete");
  await page.getByTestId(`version-row-${name}-2`).waitFor({ state: "detached", timeout: GONE_WITHIN_MS });
}

async function narrowAndDark(page, faults) {
  await page.setViewportSize(NARROW);
  await checkWidth(page, "the narrow adapter", faults);
  await picture(page, "adapter-narrow");
  await page.setViewportSize({ width: 1280, height: 800 });
  await page.getByRole("button", { name: "Switch to the dark scheme" }).click();
  await checkAccessibility(page, "a dark adapter", faults);
  await picture(page, "adapter-dark");
  await page.getByRole("button", { name: "Switch to the light scheme" }).click();
}

async function deleteAdapter(page) {
  await page.getByRole("button", { name: "Delete adapter" }).click();
  await page.getByRole("textbox", { name: `Type ${name} to confirm` }).fill(name);
  await inDialog(page, "Delete").click();
  await page.getByTestId("adapters").waitFor();
  await page.getByTestId(`adapter-row-${name}`).waitFor({ state: "detached" });
}

const line = await Line.to(ADMIN_URL);
await run(async (page, faults) => {
  const cut = await uploadWithCuts(page, faults, line);
  done("cut");
  await resume(page, faults, cut);
  done("upload");
  await readCertificate(page, faults);
  done("certificate");
  await uploadSecond(page);
  done("second");
  await canaryAndBack(page, faults);
  done("canary");
  await conflict(page, faults);
  done("conflict");
  await quarantineAndRelease(page, faults);
  done("quarantine");
  await retireRestoreDelete(page, faults);
  done("retire");
  await narrowAndDark(page, faults);
  await deleteAdapter(page);
  done("delete");
}, line.url);
line.close();
