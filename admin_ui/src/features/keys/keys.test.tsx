import { fireEvent, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";

import { refusal, session, stubNetwork } from "@/testing/network";
import { renderApp } from "@/testing/render-app";
import { adapter, apiKey, limits, list, tenantRoutes } from "@/testing/samples";

import { dayOf, endOfDay, expiryProblem } from "./expiry";
import { networksProblem } from "./networks";
import { DEFAULT_SCOPES } from "./scopes";
import { standing } from "./standing";

const KEYS = "/admin/v1/tenants/acme/keys";
const TENANT = { ...tenantRoutes("acme"), "GET /admin/v1/tenants/acme/adapters": { body: list(adapter("pirate", [])) } };

describe("a tenant's keys", () => {
  it("shows the secret of a new key once", async () => {
    const network = stubNetwork({
      ...TENANT,
      [`GET ${KEYS}`]: { body: list() },
      [`POST ${KEYS}`]: { status: 201, body: { ...apiKey("bot"), secret: "lk_secret" } },
    });
    renderApp("/tenants/acme/keys");
    await userEvent.click(await screen.findByRole("button", { name: "Create key" }));
    await userEvent.type(await screen.findByRole("textbox", { name: /Name/ }), "bot");
    network.answer(`GET ${KEYS}`, { body: list(apiKey("bot")) });
    await userEvent.click(screen.getByRole("button", { name: "Create" }));
    expect(await screen.findByTestId("key-secret")).toHaveValue("lk_secret");
    await userEvent.click(screen.getByRole("button", { name: "I have copied it" }));
    expect(await screen.findByTestId("key-row-bot")).toHaveTextContent("lk_7f3a00bc12De_…Q2x9");
    await waitFor(() => {
      expect(screen.queryByDisplayValue("lk_secret")).not.toBeInTheDocument();
    });
    const [request] = network.requests(`POST ${KEYS}`);
    expect(await request?.json()).toEqual({ name: "bot", scopes: DEFAULT_SCOPES, limits: {} });
    expect(request?.headers.get("x-csrf-token")).toBe(session.csrf_token);
  });

  it("makes a key that may do less: fewer scopes, one adapter, one network, until a day", async () => {
    const network = stubNetwork({
      ...TENANT,
      [`GET ${KEYS}`]: { body: list() },
      [`POST ${KEYS}`]: { status: 201, body: { ...apiKey("bot"), secret: "lk_secret" } },
    });
    renderApp("/tenants/acme/keys");
    await userEvent.click(await screen.findByRole("button", { name: "Create key" }));
    await userEvent.type(await screen.findByRole("textbox", { name: /Name/ }), "bot");
    await userEvent.click(screen.getByRole("checkbox", { name: "audit:read" }));
    await userEvent.click(screen.getByRole("combobox", { name: "Only these adapters" }));
    await userEvent.click(await screen.findByRole("option", { name: "pirate", hidden: true }));
    const networks = screen.getByRole("textbox", { name: /Only from these networks/ });
    await userEvent.type(networks, "192.0.2.0/33");
    fireEvent.change(screen.getByLabelText(/Last day/), { target: { value: "2100-01-01" } });
    await userEvent.click(screen.getByRole("button", { name: "Create" }));
    expect(await screen.findByText(/“192.0.2.0\/33” is no address/)).toBeVisible();
    await userEvent.clear(networks);
    await userEvent.type(networks, "192.0.2.0/24, 2001:db8::1");
    await userEvent.click(screen.getByRole("button", { name: "Create" }));
    expect(await screen.findByTestId("key-secret")).toHaveValue("lk_secret");
    expect(await network.requests(`POST ${KEYS}`)[0]?.json()).toEqual({
      name: "bot",
      scopes: DEFAULT_SCOPES.filter((scope) => scope !== "audit:read"),
      limits: {},
      allowed_adapters: ["pirate"],
      ip_allowlist: ["192.0.2.0/24", "2001:db8::1"],
      expires_at: Date.UTC(2100, 0, 2) / 1000,
    });
  });

  it("rotates a key with an overlap and shows the new secret once", async () => {
    const old = apiKey("bot");
    const network = stubNetwork({
      ...TENANT,
      [`GET ${KEYS}`]: { body: list(old) },
      [`POST ${KEYS}/key-bot/rotate`]: { status: 201, body: { ...apiKey("bot", { id: "key-2" }), secret: "lk_new" } },
    });
    renderApp("/tenants/acme/keys");
    await userEvent.click(await screen.findByRole("button", { name: /Rotate bot/ }));
    const hours = await screen.findByRole("textbox", { name: "Hours that both work" });
    await userEvent.clear(hours);
    await userEvent.type(hours, "200");
    expect(screen.getByText("Whole hours, 0 to 168.")).toBeVisible();
    await userEvent.clear(hours);
    await userEvent.type(hours, "12");
    const inAnHour = Math.floor(Date.now() / 1000) + 3600;
    network.answer(`GET ${KEYS}`, {
      body: list(
        { ...old, replaced_at: 1_700_000_005, expires_at: inAnHour },
        apiKey("bot", { id: "key-2", hint: "New1", rotated_from: old.id, subject_id: old.subject_id, created_at: 1_700_000_005 }),
      ),
    });
    await userEvent.click(screen.getByRole("button", { name: "Rotate" }));
    expect(await screen.findByTestId("key-secret")).toHaveValue("lk_new");
    expect(screen.getByText(/works for 12 h more/)).toBeVisible();
    await userEvent.click(screen.getByRole("button", { name: "I have copied it" }));
    expect(await network.requests(`POST ${KEYS}/key-bot/rotate`)[0]?.json()).toEqual({ overlap_hours: 12 });
    await waitFor(() => {
      expect(screen.getAllByTestId("key-row-bot").map((row) => row.dataset.standing)).toEqual(["active", "replaced"]);
    });
    await waitFor(() => {
      expect(screen.queryByDisplayValue("lk_new")).not.toBeInTheDocument();
    });
  });

  it("revokes a key only after a confirmation, and keeps the reason", async () => {
    const revoked = apiKey("bot", { status: "revoked", revoked_at: 1_700_000_009, revoke_reason: "it leaked" });
    const network = stubNetwork({
      ...TENANT,
      [`GET ${KEYS}`]: { body: list(apiKey("bot")) },
      [`POST ${KEYS}/key-bot/revoke`]: { body: { ...revoked, made_keys: [apiKey("child")] } },
    });
    renderApp("/tenants/acme/keys");
    await userEvent.click(await screen.findByRole("button", { name: /Revoke bot/ }));
    await userEvent.type(await screen.findByRole("textbox", { name: /Reason/ }), "it leaked");
    expect(network.requests(`POST ${KEYS}/key-bot/revoke`)).toHaveLength(0);
    await userEvent.click(screen.getByRole("checkbox", { name: /made with it/ }));
    network.answer(`GET ${KEYS}`, { body: list(revoked) });
    await userEvent.click(screen.getByRole("button", { name: "Revoke" }));
    await waitFor(() => {
      expect(screen.getByTestId("key-row-bot")).toHaveTextContent("revokedit leaked");
    });
    expect(await network.requests(`POST ${KEYS}/key-bot/revoke`)[0]?.json()).toEqual({
      reason: "it leaked",
      with_made: true,
    });
    expect(await screen.findByText(/keys that work on: child/)).toBeVisible();
    expect(screen.queryByRole("button", { name: /Revoke bot/ })).not.toBeInTheDocument();
  });

  it("changes only what was edited", async () => {
    const key = apiKey("bot", { ip_allowlist: ["192.0.2.0/24"] });
    const network = stubNetwork({
      ...TENANT,
      [`GET ${KEYS}`]: { body: list(key) },
      [`GET ${KEYS}/key-bot/limits`]: { body: { limits: limits() } },
      [`PATCH ${KEYS}/key-bot`]: { body: key },
    });
    renderApp("/tenants/acme/keys/key-bot");
    expect(await screen.findByTestId("key-facts")).toHaveTextContent("192.0.2.0/24");
    await userEvent.click(screen.getByRole("button", { name: "Edit" }));
    await userEvent.clear(await screen.findByRole("textbox", { name: /Only from these networks/ }));
    await userEvent.click(screen.getByRole("button", { name: "Save" }));
    await waitFor(() => {
      expect(network.requests(`PATCH ${KEYS}/key-bot`)).toHaveLength(1);
    });
    expect(await network.requests(`PATCH ${KEYS}/key-bot`)[0]?.json()).toEqual({ ip_allowlist: null });
  });

  it("tells why a key could not be created", async () => {
    stubNetwork({
      ...TENANT,
      [`GET ${KEYS}`]: { body: list() },
      [`POST ${KEYS}`]: refusal(403, "csrf_failed", "The request did not come from this dashboard.", "req_9"),
    });
    renderApp("/tenants/acme/keys");
    await userEvent.click(await screen.findByRole("button", { name: "Create key" }));
    await userEvent.type(await screen.findByRole("textbox", { name: /Name/ }), "bot");
    await userEvent.click(screen.getByRole("button", { name: "Create" }));
    expect(await screen.findByText("The request did not come from this dashboard.")).toBeVisible();
    expect(screen.getByText("Request req_9")).toBeVisible();
  });
});

describe("a key's standing", () => {
  const now = 1_700_000_100;

  it("follows its life: active, replaced, expired, revoked", () => {
    const words = [
      apiKey("a"),
      apiKey("a", { replaced_at: now - 5, expires_at: now + 5 }),
      apiKey("a", { replaced_at: now - 5, expires_at: now }),
      apiKey("a", { expires_at: now + 5, revoked_at: now - 1, status: "revoked" }),
    ].map((key) => standing(key, now));
    expect(words.map(({ word, works }) => [word, works])).toEqual([
      ["active", true],
      ["replaced", true],
      ["expired", false],
      ["revoked", false],
    ]);
  });

  it("knows the days of a date field, to the end of the day in UTC", () => {
    const end = endOfDay("2027-02-28");
    expect(end).toBe(Date.UTC(2027, 2, 1) / 1000);
    expect(dayOf(end)).toBe("2027-02-28");
    expect([dayOf(null), endOfDay("")]).toEqual(["", null]);
    expect(expiryProblem("2020-01-01", now)).not.toBeNull();
  });

  it("knows addresses and networks of both kinds", () => {
    expect(["", "10.0.0.1", "10.0.0.0/8, ::1\n2001:db8::/32", "::ffff:192.0.2.1"].map(networksProblem)).toEqual([null, null, null, null]);
    expect(["10.0.0.256", "10.0.0.0/33", "host", "::1/129", "1/2/3"].filter((text) => networksProblem(text) === null)).toEqual([]);
  });
});
