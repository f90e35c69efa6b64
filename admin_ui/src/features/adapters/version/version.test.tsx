import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";

import type { Version } from "@/api/types";
import { refusal, stubNetwork } from "@/testing/network";
import { renderApp } from "@/testing/render-app";
import { adapter, alias, certificate, list, overview, version } from "@/testing/samples";

import { configRows, effectWord, moduleRows, rankRows, relativeDifference } from "./reading";

const PIRATE = "/admin/v1/tenants/acme/adapters/pirate";

function stub(fields: Partial<Version>) {
  return stubNetwork({
    "GET /admin/v1/overview": { body: overview() },
    [`GET ${PIRATE}`]: { body: adapter("pirate", [version("pirate", 2, fields)], [alias("live", { 2: 100 })]) },
    [`GET ${PIRATE}/versions/2/files`]: {
      body: list({ filename: "adapter_model.safetensors", bytes: 2_461_832, sha256: "ef".repeat(32) }),
    },
  });
}

describe("reading a certificate", () => {
  it("calls effects none, small or strong", () => {
    expect([0, 1e-6, 1e-4, 0.09, 0.1, 2].map(effectWord)).toEqual([
      "no effect",
      "no effect",
      "small effect",
      "small effect",
      "strong effect",
      "strong effect",
    ]);
  });

  it("reads a difference by the largest logit, and not at all without PEFT", () => {
    expect(relativeDifference(certificate)).toBeCloseTo(5e-7);
    expect(relativeDifference({ ...certificate, max_logit_difference: null, logit_scale: null })).toBeNull();
  });

  it("lists modules in the order of a layer and ranks by size", () => {
    const modules = { "mlp.down_proj": 1, lm_head: 1, "self_attn.v_proj": 2, "self_attn.q_proj": 3 };
    expect(moduleRows(modules).map(({ module }) => module)).toEqual([
      "self_attn.q_proj",
      "self_attn.v_proj",
      "mlp.down_proj",
      "lm_head",
    ]);
    expect(rankRows({ "16": 2, "8": 56 })).toEqual([
      [8, 56],
      [16, 2],
    ]);
  });

  it("keeps a configuration's fields that say something apart from those that are off", () => {
    const { said, empty } = configRows({ r: 8, use_dora: false, rank_pattern: {}, bias: "none", target_modules: ["q", "v"] });
    expect(said.map(({ field, value }) => `${field}=${value}`)).toEqual(["bias=none", "r=8", "target_modules=q, v"]);
    expect(empty.map(({ field }) => field)).toEqual(["rank_pattern", "use_dora"]);
  });
});

describe("the page of a version", () => {
  it("shows each measured figure beside what it is read by", async () => {
    stub({ certificate });
    renderApp("/tenants/acme/adapters/pirate/versions/2");
    expect(await screen.findByTestId("parity")).toHaveTextContent(/1\.2e-5.*logits reach 24\.6: 5\.0e-7 of it/);
    expect(screen.getByTestId("agreement")).toHaveTextContent(/100\.0 %.*192 tokens/);
    expect(screen.getByTestId("neighbours")).toHaveTextContent(/unchanged.*alike in the engine/);
    expect(screen.getByTestId("effect")).toHaveTextContent("strong effect");
    expect(screen.getByTestId("shape")).toHaveTextContent(/self_attn\.q_proj28.*self_attn\.v_proj30/);
    expect(screen.getByTestId("report")).toHaveTextContent("It passed every check");
  });

  it("says so when the comparison with PEFT wasn't made", async () => {
    const nothing = { max_logit_difference: null, logit_scale: null, greedy_agreement: null, served_alike: null };
    stub({ certificate: { ...certificate, oracle: "reference_ops", ...nothing } });
    renderApp("/tenants/acme/adapters/pirate/versions/2");
    expect(await screen.findByTestId("parity")).toHaveTextContent("not compared");
    expect(screen.getByTestId("certificate")).toHaveTextContent("Not compared with PEFT");
    expect(screen.getByTestId("neighbours")).toHaveTextContent("not tried in an engine");
  });

  it("links every file to its bytes", async () => {
    stub({ certificate });
    renderApp("/tenants/acme/adapters/pirate/versions/2");
    const row = await screen.findByTestId("file-adapter_model.safetensors");
    expect(within(row).getByRole("link")).toHaveAttribute("href", `${PIRATE}/versions/2/files/adapter_model.safetensors`);
    expect(row).toHaveTextContent("efefefefefef");
  });

  it("shows the fields that are off on demand", async () => {
    stub({ certificate });
    renderApp("/tenants/acme/adapters/pirate/versions/2");
    const config = within(await screen.findByTestId("config"));
    expect(config.queryByText("use_dora")).not.toBeInTheDocument();
    await userEvent.click(config.getByRole("button", { name: "Show 2 fields that are off" }));
    expect(config.getByText("use_dora")).toBeVisible();
  });

  it("tells why a version was rejected", async () => {
    stub({ state: "rejected", reject_code: "shape_mismatch", reject_detail: "q_proj: lora_A is 8 × 960, this model needs 8 × 576." });
    renderApp("/tenants/acme/adapters/pirate/versions/2");
    expect(await screen.findByTestId("version-reject-pirate-2")).toHaveTextContent(/shape_mismatch.*8 × 576/);
    expect(screen.queryByTestId("certificate")).not.toBeInTheDocument();
  });

  it("tells since when and why a version is quarantined", async () => {
    stub({ state: "quarantined", retired_at: 1_700_000_100, retire_reason: "leaks names" });
    renderApp("/tenants/acme/adapters/pirate/versions/2");
    expect(await screen.findByTestId("since")).toHaveTextContent(/Quarantined on.*Reason: leaks names/);
    expect(screen.getByRole("button", { name: "Release" })).toBeEnabled();
  });

  it("says that there is no such adapter, and no such version", async () => {
    const network = stub({});
    renderApp("/tenants/acme/adapters/pirate/versions/9");
    expect(await screen.findByText("There is no adapter “pirate:9”")).toBeVisible();
    network.answer(`GET ${PIRATE}`, refusal(404, "not_found", "There is no such adapter."));
    renderApp("/tenants/acme/adapters/pirate");
    expect(await screen.findByText("There is no adapter “pirate”")).toBeVisible();
  });
});
