/**
 * Uses the instruments in a real Chromium, as an operator would: prompts with a number at their head are sent until the doctor
 * says so, then the overview, the engine's page, the planner and the costs of usage are read and held against themselves.
 *
 * Prints "DONE <part>" after each part. Exit status 1 on whatever `page.mjs` watches for, or when a part ends otherwise.
 */
import { holdStill, lookAtAll, pictureOf, required, run } from "./page.mjs";

const FOUND_WITHIN_MS = 180_000;
const COUNTED_WITHIN_MS = 90_000;
const AT_ONCE = 2;
const ANSWER_TOKENS = 24;
const RULE = "dynamic_prompt_head";

const apiUrl = required("LORIKEET_API_URL").replace(/\/$/, "");
const model = required("LORIKEET_BASE_MODEL");
const tenant = { slug: required("LORIKEET_TENANT"), key: required("LORIKEET_KEY") };

const RULES =
  "You answer the guests of a small harbour hotel. You know its rooms, its kitchen, the boats that leave from its quay " +
  "and the hours at which they leave. You answer in whole sentences, you never promise what you cannot keep, and when a " +
  "guest asks for something that the house does not have, you say so and name the nearest place that has it.";

function need(condition, sentence) {
  if (!condition) throw new Error(sentence);
}

function done(part) {
  console.log(`DONE ${part}`);
}

/** Requests one after the other, each with another number first, until the returned function is called. */
function keepAsking(faults) {
  let isOver = false;
  let asked = 0;
  async function ask() {
    while (!isOver) {
      asked += 1;
      const system = `${(7919 * asked) % 100_000} is this request. ${RULES}`;
      const messages = [{ role: "system", content: system }, { role: "user", content: "When does the last boat leave?" }];
      const response = await fetch(`${apiUrl}/v1/chat/completions`, {
        method: "POST",
        headers: { authorization: `Bearer ${tenant.key}`, "content-type": "application/json" },
        body: JSON.stringify({ model, messages, max_tokens: ANSWER_TOKENS }),
      });
      const body = await response.text();
      if (!response.ok) faults.add(`a request is answered with ${response.status}: ${body}`);
    }
  }
  const asking = Promise.all(Array.from({ length: AT_ONCE }, ask));
  return async () => {
    isOver = true;
    await asking;
  };
}

async function goTo(page, name) {
  await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name, exact: true }).click();
}

/** Figures of both phases come, and each kind of step has its own. */
async function seePhases(page) {
  const phases = page.getByTestId("phases");
  await phases.waitFor({ timeout: COUNTED_WITHIN_MS });
  const ran = phases.locator('[data-phase="decode"]:not([data-idle]), [data-phase="mixed"]:not([data-idle])').first();
  await ran.waitFor({ timeout: COUNTED_WITHIN_MS });
  await page.locator('[data-latency="ttft-all"]:not([data-idle])').waitFor({ timeout: COUNTED_WITHIN_MS });
}

/** The finding says which token differs, what that costs and what to do. */
async function seeFinding(page, faults) {
  const finding = page.getByTestId(`finding-${RULE}`);
  await finding.waitFor({ timeout: FOUND_WITHIN_MS });
  const control = finding.getByRole("button").first();
  if ((await control.getAttribute("aria-expanded")) === "false") {
    await control.focus();
    await page.keyboard.press("Enter");
  }
  await finding.getByText("first different token").waitFor();
  const told = await finding.textContent();
  need(/position \d+/.test(told), `the finding has no position: ${told}`);
  need(((await finding.getByTestId("cost").textContent()) ?? "").length > 0, "the finding has no cost");
  await control.blur();
  await lookAtAll(page, "findings", faults);
  await pictureOf(page, "findings", 650);
}

/** The rows of the memory table are what is available, to the byte. */
async function needAddsUp(table) {
  await table.locator('[data-memory="available"]').waitFor();
  const bytes = await table.locator("[data-memory]").evaluateAll((rows) => rows.map((row) => Number(row.dataset.bytes)));
  const available = bytes.pop();
  const sum = bytes.reduce((all, n) => all + n, 0);
  need(bytes.length > 1 && sum === available, `the memory table does not add up: ${bytes} are not ${available}`);
}

async function seeEngine(page, faults) {
  await goTo(page, "Engine");
  await needAddsUp(page.getByTestId("memory").getByRole("table"));
  const decode = page.getByTestId("phases").locator('[data-phase="decode"], [data-phase="mixed"]');
  await decode.getByText("FLOP/s").first().waitFor({ timeout: COUNTED_WITHIN_MS });
  await page.getByTestId("roofline").locator("[data-verdict]").first().waitFor();
  const setting = page.getByTestId("knob-max_num_seqs");
  need((await setting.textContent()).includes("LORIKEET_ENGINE__MAX_NUM_SEQS"), "the seats have no setting");
  await holdStill(page, "the engine's page", faults);
  await lookAtAll(page, "engine", faults);
  await pictureOf(page, "engine", 1385);
}

async function fill(page, label, text) {
  await page.getByRole("textbox", { name: label, exact: true }).fill(text);
}

async function choose(page, field, option) {
  await page.getByRole("combobox", { name: field }).click();
  await page.getByRole("option", { name: option, exact: true }).click();
}

/** Waits for the plan that answers what `act` changes. */
async function answerTo(page, act) {
  const isPlan = (response) => response.url().endsWith("/admin/v1/plan") && response.ok();
  await Promise.all([page.waitForResponse(isPlan), act()]);
  await page.locator('[data-testid="plan"]:not([data-stale])').waitFor();
}

async function planAhead(page, faults) {
  await goTo(page, "Planner");
  await page.getByTestId("fits").waitFor();
  await needAddsUp(page.getByTestId("planned-memory").getByRole("table"));
  await choose(page, "Device", "rtx4090");
  await answerTo(page, () => choose(page, "Model", "qwen2.5-7b"));
  const before = await page.getByTestId("request-kv").textContent();
  const slider = page.getByRole("slider", { name: "Prompt tokens" });
  await slider.focus();
  await answerTo(page, () => page.keyboard.press("ArrowRight"));
  need((await page.getByTestId("request-kv").textContent()) !== before, "a longer prompt takes no more");
  await answerTo(page, () => page.getByRole("switch", { name: "With adapters" }).check());
  await page.getByTestId("lora-verdict").waitFor();
  await needAddsUp(page.getByTestId("planned-memory").getByRole("table"));
  await lookAtAll(page, "planner", faults);
  await pictureOf(page, "planner", 1260);
}

/** What the server refuses stands at its field, and the answer before it stays. */
async function seeRefusal(page, faults) {
  await page.getByRole("button", { name: "More settings" }).click();
  await faults.expecting(async () => {
    await fill(page, "Tokens in a KV block", "5");
    await page.getByText("This question has no answer yet").waitFor();
  });
  const field = page.getByRole("textbox", { name: "Tokens in a KV block" });
  need((await field.getAttribute("aria-invalid")) === "true", "the refused field is not marked");
  await lookAtAll(page, "planner-refused", faults);
  await fill(page, "Tokens in a KV block", "");
  await page.getByText("This question has no answer yet").waitFor({ state: "detached" });
  await page.waitForURL((address) => !address.searchParams.has("knobs.block_size"));
}

/** A workload that the engine has just had, by the steps that it made. */
async function calibrate(page, faults) {
  await page.reload();
  await page.getByTestId("fits").waitFor();
  need((await page.getByRole("combobox", { name: "Device" }).inputValue()) === "rtx4090", "a reload forgets the question");
  await page.goto(page.url().split("?")[0]);
  await page.getByTestId("fits").waitFor();
  // One at a time: two that begin together share a first step as large as the engine has perhaps never made.
  await answerTo(page, () => fill(page, "Requests at once", "1"));
  await answerTo(page, () => fill(page, "Prompt tokens", "80"));
  await answerTo(page, () => fill(page, "Answer tokens", String(ANSWER_TOKENS)));
  await answerTo(page, () => page.getByRole("switch", { name: "Calibrate from the running engine" }).check());
  await page.getByTestId("calibration").waitFor();
  need((await page.getByTestId("estimate-itl_s").textContent()).includes("–"), "a calibrated estimate has no error band");
  await lookAtAll(page, "planner-live", faults);
}

async function readCosts(page, faults) {
  await goTo(page, "Usage");
  await choose(page, "Grouped by", "tenant");
  const row = page.getByTestId(`cost-tenant-${tenant.slug}`);
  await row.waitFor({ timeout: COUNTED_WITHIN_MS });
  const deadline = Date.now() + COUNTED_WITHIN_MS;
  while (!/[1-9].*FLOP/.test(await row.textContent())) {
    need(Date.now() < deadline, `no costs are counted in time: ${await row.textContent()}`);
    await page.waitForTimeout(500);
  }
  await lookAtAll(page, "costs", faults);
}

async function tour(page, faults) {
  const stopAsking = keepAsking(faults);
  try {
    await seePhases(page);
    done("phases");
    await seeFinding(page, faults);
    done("finding");
    await seeEngine(page, faults);
    done("engine");
  } finally {
    await stopAsking();
  }
  await planAhead(page, faults);
  done("planner");
  await seeRefusal(page, faults);
  done("refusal");
  await calibrate(page, faults);
  done("calibration");
  await readCosts(page, faults);
  done("costs");
}

await run(tour);
