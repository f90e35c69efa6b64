/**
 * Walks through a tenant's life in a real Chromium, as an owner would: made, limited, given a key with less than all
 * scopes, the key rotated and revoked, its usage read and downloaded, jobs seen, the tenant suspended and resumed. Whether
 * a key works is asked of the tenant API itself.
 *
 * Prints "DONE <part>" after each part. Exit status 1 on whatever `page.mjs` watches for, or when a part ends otherwise.
 */
import { readFile } from "node:fs/promises";

import { ADMIN_URL, holdStill, lookAtAll, pictureOf, required, run } from "./page.mjs";

const COUNTED_WITHIN_MS = 60_000;
const tenant = required("LORIKEET_TENANT");
const apiUrl = required("LORIKEET_API_URL").replace(/\/$/, "");
const baseModel = required("LORIKEET_BASE_MODEL");
/** A tenant that has an adapter already, and a key of it. */
const neighbour = {
  slug: required("LORIKEET_NEIGHBOUR"),
  key: required("LORIKEET_NEIGHBOUR_KEY"),
  adapter: required("LORIKEET_ADAPTER"),
};

const plan = `${tenant}-small`;
const KEY_NAME = "support bot";
const ASKED = 3;

function need(condition, sentence) {
  if (!condition) throw new Error(sentence);
}

function done(part) {
  console.log(`DONE ${part}`);
}

/** The status of one short request, and the code when it was refused. */
async function ask(key, model) {
  const response = await fetch(`${apiUrl}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify({ model, max_tokens: 8, messages: [{ role: "user", content: "Say hello to the harbour." }] }),
  });
  const body = await response.json();
  return response.ok ? "ok" : `${response.status} ${body.error.code}`;
}

/** Revocations and suspensions are pushed: within seconds the answer is another. */
async function answersSoon(key, expected) {
  const deadline = Date.now() + 5_000;
  let answer = await ask(key, baseModel);
  while (answer !== expected && Date.now() < deadline) answer = await ask(key, baseModel);
  need(answer === expected, `the key is answered with ${answer}, not with ${expected}`);
}

async function goTo(page, name) {
  await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name }).click();
}

async function openTenant(page, slug, tab) {
  await goTo(page, "Tenants");
  await page.getByTestId(`tenant-row-${slug}`).getByRole("link").click();
  await page.getByRole("tab", { name: tab }).click();
}

async function createTenant(page) {
  await goTo(page, "Tenants");
  await page.getByRole("button", { name: "Create tenant" }).click();
  await page.getByRole("textbox", { name: "Slug" }).fill(tenant);
  await page.getByRole("textbox", { name: "Display name" }).fill("Lagoon Rentals");
  await page.getByRole("textbox", { name: "Weight" }).fill("2");
  await page.getByRole("button", { name: "Create", exact: true }).click();
  await page.getByText("No keys yet").waitFor();
  await page.getByText("weight 2").waitFor();
  await page.getByRole("tab", { name: "Overview" }).click();
  await page.getByTestId("tenant-memory").getByText("0 bytes").first().waitFor();
  await page.getByTestId("month-tokens").getByText("of ").waitFor();
}

/** A limit of its own holds, says whose it is, and can be taken away again. */
async function limit(page, faults) {
  await page.getByRole("tab", { name: "Limits" }).click();
  const row = page.getByTestId("limit-rpm");
  need((await row.getAttribute("data-origin")) === "plan", "the first limit is not the plan's");
  await page.getByRole("button", { name: "Set Requests a minute" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("textbox", { name: "Limit" }).fill("600");
  await dialog.getByRole("textbox", { name: "Burst" }).fill("60");
  await lookAtAll(page, "limit-dialog", faults);
  await dialog.getByRole("button", { name: "Set" }).click();
  await page.locator('[data-testid="limit-rpm"][data-origin="tenant"]').waitFor();
  await page.getByRole("button", { name: "Set Bytes of adapters" }).click();
  await dialog.getByRole("textbox", { name: "Limit" }).fill("2 GiB");
  await dialog.getByRole("button", { name: "Set" }).click();
  await page.locator('[data-testid="limit-adapter_bytes"][data-origin="tenant"]').waitFor();
  await lookAtAll(page, "limits", faults);
  await pictureOf(page, "limits", 900);
  await page.getByRole("button", { name: "Edit Bytes of adapters" }).click();
  await dialog.getByRole("button", { name: "Remove" }).click();
  await page.locator('[data-testid="limit-adapter_bytes"][data-origin="plan"]').waitFor();
}

/** The secret that the open dialogue shows; then it is closed, and nothing on the page or in the browser has it. */
async function takeSecret(page) {
  const secret = await page.getByTestId("key-secret").inputValue();
  need(secret.startsWith("lk_"), "the secret is no key");
  await page.getByRole("button", { name: "I have copied it" }).click();
  await page.getByTestId("key-secret").waitFor({ state: "detached" });
  await needGone(page, secret, "after its dialogue is closed");
  return secret;
}

async function needGone(page, secret, when) {
  const isThere = await page.evaluate((text) => {
    const kept = [...Object.values(window.localStorage), ...Object.values(window.sessionStorage)];
    const typed = [...document.querySelectorAll("input, textarea")].map((field) => field.value);
    return [document.documentElement.outerHTML, ...kept, ...typed].some((each) => each.includes(text));
  }, secret);
  need(!isThere, `the secret is still there ${when}`);
}

async function createKey(page, faults) {
  await page.getByRole("tab", { name: "Keys" }).click();
  await page.getByRole("button", { name: "Create key" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("textbox", { name: "Name" }).fill(KEY_NAME);
  for (const scope of ["adapters:write", "deployments:write"]) await dialog.getByRole("checkbox", { name: scope }).uncheck();
  await dialog.getByRole("textbox", { name: "Only from these networks" }).fill("127.0.0.0/8\n::1");
  await lookAtAll(page, "key-dialog", faults);
  await dialog.getByRole("button", { name: "Create" }).click();
  const secret = await takeSecret(page);
  await page.reload();
  const row = page.getByTestId(`key-row-${KEY_NAME}`);
  await row.waitFor();
  await needGone(page, secret, "after a reload");
  need((await row.textContent()).includes("5 scopes"), `the key has other scopes: ${await row.textContent()}`);
  await answersSoon(secret, "ok");
  return secret;
}

async function rotate(page, old, faults) {
  await page.getByRole("button", { name: `Rotate ${KEY_NAME}` }).click();
  await page.getByRole("textbox", { name: "Hours that both work" }).fill("48");
  await page.getByRole("button", { name: "Rotate", exact: true }).click();
  const renewed = await takeSecret(page);
  await page.locator(`[data-testid="key-row-${KEY_NAME}"][data-standing="replaced"]`).waitFor();
  for (const key of [old, renewed]) await answersSoon(key, "ok");
  await lookAtAll(page, "keys", faults);
  return renewed;
}

async function revoke(page, old, renewed, faults) {
  const replaced = page.locator(`[data-testid="key-row-${KEY_NAME}"][data-standing="replaced"]`);
  await replaced.getByRole("button", { name: "Revoke" }).click();
  await page.getByRole("textbox", { name: "Reason" }).fill("the rotation is over");
  await page.getByRole("dialog").getByRole("button", { name: "Revoke" }).click();
  await page.locator(`[data-testid="key-row-${KEY_NAME}"][data-standing="revoked"]`).waitFor();
  await answersSoon(old, "401 invalid_api_key");
  await answersSoon(renewed, "ok");
  await page.locator(`[data-testid="key-row-${KEY_NAME}"][data-standing="active"]`).getByRole("link").click();
  await page.getByTestId("lineage").waitFor();
  await page.getByTestId("limits").waitFor();
  await lookAtAll(page, "key", faults);
}

async function choose(page, field, option) {
  await page.getByRole("combobox", { name: field }).click();
  await page.getByRole("option", { name: option, exact: true }).click();
}

/** The figure of the first column of requests in a row. */
async function requestsOf(row) {
  return Number((await row.getByRole("cell").nth(1).textContent()).replaceAll(",", ""));
}

async function readUsage(page, faults) {
  for (const model of [neighbour.adapter, baseModel]) {
    for (let at = 0; at < ASKED; at += 1) need((await ask(neighbour.key, model)) === "ok", `${model} does not answer`);
  }
  await openTenant(page, neighbour.slug, "Usage");
  await choose(page, "Grouped by", "adapter");
  const adapter = page.getByTestId(`usage-adapter-${neighbour.adapter}`);
  await adapter.waitFor({ timeout: COUNTED_WITHIN_MS });
  const deadline = Date.now() + COUNTED_WITHIN_MS;
  while ((await requestsOf(adapter)) < ASKED) {
    need(Date.now() < deadline, "the requests are not counted in time");
    await page.waitForTimeout(500);
  }
  await page.getByTestId("usage-adapter-base model").waitFor();
  await page.getByTestId("usage-columns").waitFor();
  await holdStill(page, "the usage page", faults);
  await lookAtAll(page, "usage", faults);
  await pictureOf(page, "usage", 1180);
  await page.getByText("By day", { exact: true }).click();
  await page.getByRole("table", { name: "Usage by day" }).waitFor();
  await choose(page, "Grouped by", "key");
  await page.locator('[data-testid^="usage-key-"]').first().waitFor();
  await page.reload();
  await page.getByRole("table", { name: "Usage by key" }).waitFor();
  need((await page.getByRole("combobox", { name: "Grouped by" }).inputValue()) === "key", "a reload forgets the view");
}

/** The file has what the page shows: the same requests, and the key that made them. */
async function downloadCsv(page) {
  await choose(page, "Grouped by", "adapter");
  await page.getByRole("table", { name: "Usage by adapter" }).waitFor();
  const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("link", { name: "CSV" }).click()]);
  need(download.suggestedFilename().endsWith(".csv"), `the file is called ${download.suggestedFilename()}`);
  const [head, ...lines] = (await readFile(await download.path(), "utf8")).trim().split(/\r?\n/);
  const [name, requests] = ["adapter", "requests"].map((column) => head.split(",").indexOf(column));
  need(name >= 0 && requests >= 0, `the file has other columns: ${head}`);
  const cells = lines.map((line) => line.split(","));
  const counted = cells.filter((row) => row[name] === neighbour.adapter).reduce((sum, row) => sum + Number(row[requests]), 0);
  const shown = await requestsOf(page.getByTestId(`usage-adapter-${neighbour.adapter}`));
  need(counted >= ASKED && counted === shown, `the file counts ${counted} requests, the page ${shown}`);
}

async function seeEverybody(page, faults) {
  await goTo(page, "Usage");
  await choose(page, "Grouped by", "tenant");
  for (const slug of [tenant, neighbour.slug]) await page.getByTestId(`usage-tenant-${slug}`).waitFor({ timeout: COUNTED_WITHIN_MS });
  await page.getByTestId("usage-columns").waitFor();
  await lookAtAll(page, "usage-all", faults);
  await goTo(page, "Tenants");
  await page.getByTestId(`tenant-row-${tenant}`).waitFor();
  await lookAtAll(page, "tenants", faults);
  await page.getByTestId(`tenant-row-${neighbour.slug}`).getByRole("link").click();
  await page.getByTestId("tenant-memory").getByText("bytes").first().waitFor();
  await lookAtAll(page, "tenant", faults);
}

async function seeJobs(page, faults) {
  await goTo(page, "Jobs");
  await page.getByTestId("job-list").getByText("validate").first().waitFor();
  await page.getByTestId("chores").getByText("well").first().waitFor();
  await holdStill(page, "the jobs page", faults);
  await lookAtAll(page, "jobs", faults);
  await page.getByText("failed", { exact: true }).first().click();
  await page.getByText("No job is failed").waitFor();
}

async function seePlans(page, faults) {
  await goTo(page, "Plans");
  await page.getByTestId("plan-row-standard").waitFor();
  await lookAtAll(page, "plans", faults);
  await page.getByRole("button", { name: "Create plan" }).click();
  await page.getByRole("textbox", { name: "Name" }).fill(plan);
  await page.getByRole("button", { name: "Create", exact: true }).click();
  await page.getByRole("button", { name: "Edit Tokens a month" }).click();
  await page.getByRole("textbox", { name: "Limit" }).fill("5 million");
  await page.getByRole("dialog").getByRole("button", { name: "Set" }).click();
  await page.getByTestId("plan-limit-monthly_tokens").getByText("5 million").waitFor();
  await openTenant(page, tenant, "Overview");
  await choose(page, "Plan", plan);
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByTestId("month-tokens").getByText("of 5 million").waitFor();
}

async function suspendAndResume(page, key, faults) {
  await page.getByRole("button", { name: "Suspend tenant" }).click();
  await page.getByRole("textbox", { name: "Reason" }).fill("a walk through the dashboard");
  await page.getByRole("dialog").getByRole("button", { name: "Suspend" }).click();
  await page.locator('[data-testid="tenant-status"][data-status="suspended"]').waitFor();
  await answersSoon(key, "403 tenant_suspended");
  await page.getByRole("button", { name: "Resume tenant" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Resume" }).click();
  await page.locator('[data-testid="tenant-status"][data-status="active"]').waitFor();
  await answersSoon(key, "ok");
  await page.getByRole("tab", { name: "Audit" }).click();
  for (const action of ["tenant.create", "tenant.limits", "key.create", "key.rotate", "key.revoke", "tenant.suspend", "tenant.resume"]) {
    await page.getByTestId(`event-${action}`).first().waitFor();
  }
  await lookAtAll(page, "audit", faults);
}

async function tour(page, faults) {
  await createTenant(page);
  done("tenant");
  await limit(page, faults);
  done("limit");
  const first = await createKey(page, faults);
  done("key");
  const second = await rotate(page, first, faults);
  done("rotate");
  await revoke(page, first, second, faults);
  done("revoke");
  await readUsage(page, faults);
  done("usage");
  await downloadCsv(page);
  done("csv");
  await seeEverybody(page, faults);
  done("everybody");
  await seeJobs(page, faults);
  done("jobs");
  await seePlans(page, faults);
  done("plans");
  await suspendAndResume(page, second, faults);
  done("suspend");
}

await run(tour, ADMIN_URL);
