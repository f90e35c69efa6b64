import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";

import { refusal, session, stubNetwork } from "@/testing/network";
import { renderApp } from "@/testing/render-app";
import { list, tenant, tenantRoutes, usage } from "@/testing/samples";

import { slugProblem } from "./slug";
import { weightProblem } from "./weight";

describe("tenants", () => {
  it("lists them with a link to each", async () => {
    stubNetwork({
      "GET /admin/v1/tenants": { body: list(tenant("acme"), tenant("globex", { weight: 2.5 })) },
      "GET /admin/v1/usage": { body: list(usage(1_700_000_000, { tenant: "globex" })) },
    });
    renderApp("/tenants");
    const row = await screen.findByTestId("tenant-row-globex");
    expect(row).toHaveTextContent("2.5");
    await waitFor(() => {
      expect(row).toHaveTextContent("150");
    });
    expect(screen.getByRole("link", { name: "acme" })).toHaveAttribute("href", "/tenants/acme");
  });

  it("says what a tenant is when there is none", async () => {
    stubNetwork({ "GET /admin/v1/tenants": { body: list() } });
    renderApp("/tenants");
    expect(await screen.findByText("No tenants yet")).toBeVisible();
  });

  it("creates one and goes on to its keys", async () => {
    const network = stubNetwork({
      ...tenantRoutes("acme"),
      "GET /admin/v1/tenants": { body: list() },
      "GET /admin/v1/tenants/acme/keys": { body: list() },
      "POST /admin/v1/tenants": () => {
        network.answer("GET /admin/v1/tenants", { body: list(tenant("acme")) });
        return { status: 201, body: tenant("acme") };
      },
    });
    renderApp("/tenants");
    await userEvent.click(await screen.findByRole("button", { name: "Create tenant" }));
    await userEvent.type(await screen.findByRole("textbox", { name: /Slug/ }), "acme");
    await userEvent.click(screen.getByRole("button", { name: "Create" }));
    expect(await screen.findByText("No keys yet")).toBeVisible();
    expect(window.location.pathname).toBe("/tenants/acme/keys");
    const [request] = network.requests("POST /admin/v1/tenants");
    expect(await request?.json()).toEqual({
      slug: "acme",
      weight: 1,
      plan: "standard",
      keys_make_keys: false,
    });
    expect(request?.headers.get("x-csrf-token")).toBe(session.csrf_token);
  });

  it("refuses a bad slug in words and sends nothing", async () => {
    const network = stubNetwork({ ...tenantRoutes("acme"), "GET /admin/v1/tenants": { body: list() } });
    renderApp("/tenants");
    await userEvent.click(await screen.findByRole("button", { name: "Create tenant" }));
    await userEvent.type(await screen.findByRole("textbox", { name: /Slug/ }), "Acme!");
    await userEvent.click(screen.getByRole("button", { name: "Create" }));
    expect(await screen.findByText("Lower-case letters, digits and hyphens only.")).toBeVisible();
    expect(network.requests("POST /admin/v1/tenants")).toHaveLength(0);
  });

  it("tells a refusal with the API's sentence and the request id, and keeps the form", async () => {
    stubNetwork({
      ...tenantRoutes("acme"),
      "POST /admin/v1/tenants": refusal(409, "tenant_exists", "A tenant with the slug acme exists.", "req_42"),
    });
    renderApp("/tenants");
    await userEvent.click(await screen.findByRole("button", { name: "Create tenant" }));
    await userEvent.type(await screen.findByRole("textbox", { name: /Slug/ }), "acme");
    await userEvent.click(screen.getByRole("button", { name: "Create" }));
    expect(await screen.findByText("A tenant with the slug acme exists.")).toBeVisible();
    expect(screen.getByText("Request req_42")).toBeVisible();
    expect(screen.getByRole("textbox", { name: /Slug/ })).toHaveValue("acme");
  });

  it("creates one with the weight that was typed", async () => {
    const network = stubNetwork({
      ...tenantRoutes("acme", { weight: 2.5 }),
      "GET /admin/v1/tenants/acme/keys": { body: list() },
      "POST /admin/v1/tenants": { status: 201, body: tenant("acme", { weight: 2.5 }) },
    });
    renderApp("/tenants");
    await userEvent.click(await screen.findByRole("button", { name: "Create tenant" }));
    await userEvent.type(await screen.findByRole("textbox", { name: /Slug/ }), "acme");
    const field = screen.getByRole("textbox", { name: "Weight" });
    await userEvent.clear(field);
    await userEvent.click(screen.getByRole("button", { name: "Create" }));
    expect(await screen.findByText("A number above 0; 1 is the usual weight.")).toBeVisible();
    await userEvent.type(field, "2.5");
    await userEvent.click(screen.getByRole("button", { name: "Create" }));
    expect(await screen.findByText("No keys yet")).toBeVisible();
    expect(await network.requests("POST /admin/v1/tenants")[0]?.json()).toEqual({
      slug: "acme",
      weight: 2.5,
      plan: "standard",
      keys_make_keys: false,
    });
    expect(screen.getByText("weight 2.5")).toBeVisible();
  });

  it("knows the rule for weights", () => {
    expect([1, 0.5, 1000, "2"].map(weightProblem)).toEqual([null, null, null, null]);
    expect(["", 0, -1, 1001, "x"].filter((weight) => weightProblem(weight) === null)).toEqual([]);
  });

  it("says that a tenant does not exist", async () => {
    stubNetwork({ "GET /admin/v1/tenants/nobody": refusal(404, "not_found", "There is no such tenant.") });
    renderApp("/tenants/nobody");
    expect(await screen.findByText(/There is no tenant/)).toBeVisible();
  });

  it("knows the rule for slugs", () => {
    expect(["abc", "a-1", "0".repeat(40)].map(slugProblem)).toEqual([null, null, null]);
    expect(["ab", "-abc", "abc-", "a_b", "../etc", "a".repeat(41)].filter((slug) => slugProblem(slug) === null)).toEqual([]);
  });
});
