import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";

import { overviewRoutes } from "@/testing/instruments";
import { refusal, session, stubNetwork } from "@/testing/network";
import { renderApp } from "@/testing/render-app";
import { overview } from "@/testing/samples";

const signedOut = refusal(401, "unauthenticated", "Sign in.");

describe("signing in with the owner link", () => {
  it("exchanges the token once, takes it out of the address bar and shows the overview", async () => {
    const network = stubNetwork({
      "POST /auth/bootstrap": { body: session },
      ...overviewRoutes(overview()),
    });
    renderApp("/sign-in?token=one-time");
    expect(window.location.search).toBe("");
    expect(await screen.findByTestId("kv-ledger")).toBeVisible();
    const exchanges = network.requests("POST /auth/bootstrap");
    expect(exchanges).toHaveLength(1);
    expect(await exchanges[0]?.json()).toEqual({ token: "one-time" });
    expect(network.requests("GET /auth/session")).toHaveLength(0);
    expect([localStorage.length, sessionStorage.length]).toEqual([0, 0]);
  });

  it("explains a used link and how to get a new one", async () => {
    stubNetwork({
      "GET /auth/session": signedOut,
      "POST /auth/bootstrap": refusal(401, "invalid_token", "The owner token is not valid."),
    });
    renderApp("/sign-in?token=used");
    expect(await screen.findByRole("heading", { name: /used or has expired/ })).toBeVisible();
    expect(screen.getByText("lorikeet up")).toBeVisible();
  });

  it("goes on to the overview when a used link is opened by somebody who is signed in", async () => {
    stubNetwork({
      "POST /auth/bootstrap": refusal(404, "not_found", "There is an owner already."),
      ...overviewRoutes(overview()),
    });
    renderApp("/sign-in?token=used");
    expect(await screen.findByTestId("kv-ledger")).toBeVisible();
  });

  it("offers to try again when the server fails, since the token is not spent", async () => {
    const network = stubNetwork({
      "POST /auth/bootstrap": refusal(503, "starting", "The database is being upgraded."),
      ...overviewRoutes(overview()),
    });
    renderApp("/sign-in?token=one-time");
    expect(await screen.findByText("The database is being upgraded.")).toBeVisible();
    network.answer("POST /auth/bootstrap", { body: session });
    await userEvent.click(screen.getByRole("button", { name: "Try again" }));
    expect(await screen.findByTestId("kv-ledger")).toBeVisible();
  });

  it("says where the owner link is printed when there is no token", async () => {
    stubNetwork({ "GET /auth/session": signedOut });
    renderApp("/sign-in");
    expect(await screen.findByRole("heading", { name: "Sign in with your owner link" })).toBeVisible();
  });
});

describe("a session that ends", () => {
  it("sends a visitor without one to the sign-in page", async () => {
    stubNetwork({ "GET /auth/session": signedOut });
    renderApp("/tenants/acme");
    expect(await screen.findByTestId("sign-in-state")).toHaveAttribute("data-state", "no-token");
    expect(window.location.pathname).toBe("/sign-in");
  });

  it("sends to the sign-in page when a later request is refused with 401", async () => {
    stubNetwork({ "GET /admin/v1/overview": refusal(401, "session_expired", "The session has expired.") });
    renderApp("/");
    expect(await screen.findByTestId("sign-in-state")).toBeVisible();
  });

  it("signs out with the CSRF token that the session told", async () => {
    const network = stubNetwork({
      ...overviewRoutes(overview()),
      "POST /auth/logout": { status: 204 },
    });
    renderApp("/");
    await userEvent.click(await screen.findByRole("button", { name: "Sign out" }));
    await waitFor(() => {
      expect(screen.getByTestId("sign-in-state")).toBeVisible();
    });
    expect(network.requests("POST /auth/logout")[0]?.headers.get("x-csrf-token")).toBe(session.csrf_token);
  });
});
