import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";

import { refusal, session, stubNetwork } from "@/testing/network";
import { renderApp } from "@/testing/render-app";
import { apiKey, list, tenant } from "@/testing/samples";

const TENANTS = { "GET /admin/v1/tenants": { body: list(tenant("acme")) } };
const KEYS = "/admin/v1/tenants/acme/keys";

describe("a tenant's keys", () => {
  it("shows the secret of a new key once", async () => {
    const network = stubNetwork({
      ...TENANTS,
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
    expect(await request?.json()).toEqual({ name: "bot" });
    expect(request?.headers.get("x-csrf-token")).toBe(session.csrf_token);
  });

  it("revokes a key only after a confirmation", async () => {
    const network = stubNetwork({
      ...TENANTS,
      [`GET ${KEYS}`]: { body: list(apiKey("bot")) },
      "POST /admin/v1/keys/key-bot/revoke": { body: apiKey("bot", { status: "revoked", revoked_at: 1_700_000_009 }) },
    });
    renderApp("/tenants/acme/keys");
    await userEvent.click(await screen.findByRole("button", { name: "Revoke bot" }));
    expect(network.requests("POST /admin/v1/keys/key-bot/revoke")).toHaveLength(0);
    network.answer(`GET ${KEYS}`, { body: list(apiKey("bot", { status: "revoked", revoked_at: 1_700_000_009 })) });
    await userEvent.click(await screen.findByRole("button", { name: "Revoke" }));
    await waitFor(() => {
      expect(screen.getByTestId("key-row-bot")).toHaveTextContent("revoked");
    });
    expect(screen.queryByRole("button", { name: "Revoke bot" })).not.toBeInTheDocument();
  });

  it("tells why a key could not be created", async () => {
    stubNetwork({
      ...TENANTS,
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
