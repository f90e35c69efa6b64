import { fireEvent, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { Upload, type UploadOptions } from "tus-js-client";
import { beforeEach, describe, expect, it, vi } from "vitest";

import { csrf } from "@/api/csrf";
import { refusal, session, stubNetwork } from "@/testing/network";
import { renderApp } from "@/testing/render-app";
import { adapter, list, overview, version } from "@/testing/samples";

vi.mock("tus-js-client", async (original) => ({ ...(await original<object>()), Upload: vi.fn() }));

const BASE = "/admin/v1/tenants/acme";
const FILES = [new File(["{}"], "adapter_config.json"), new File(["weights!"], "adapter_model.safetensors"), new File(["x"], "notes.md")];

interface Attempt {
  file: File;
  options: UploadOptions;
  aborted: boolean;
}

const attempts: Attempt[] = [];
/** What an upload does when it is started; by default it sends everything. */
let behave: (attempt: Attempt) => void;

function succeed({ file, options }: Attempt): void {
  options.onProgress?.(file.size, file.size);
  options.onSuccess?.({} as Parameters<NonNullable<UploadOptions["onSuccess"]>>[0]);
}

beforeEach(() => {
  attempts.length = 0;
  behave = succeed;
  vi.mocked(Upload).mockImplementation(function (file, options) {
    const attempt: Attempt = { file: file as File, options, aborted: false };
    attempts.push(attempt);
    return {
      url: `http://localhost${BASE}/uploads/upl_${attempt.file.name}`,
      start: () => {
        queueMicrotask(() => {
          behave(attempt);
        });
      },
      abort: () => {
        attempt.aborted = true;
        return Promise.resolve();
      },
    } as unknown as Upload;
  });
});

function stub(routes: Parameters<typeof stubNetwork>[0] = {}) {
  return stubNetwork({
    "GET /admin/v1/overview": { body: overview() },
    [`GET ${BASE}/adapters`]: { body: list() },
    [`GET ${BASE}/adapters/pirate`]: { body: adapter("pirate", [version("pirate", 1)]) },
    [`GET ${BASE}/uploads`]: { body: list() },
    [`POST ${BASE}/adapters/pirate/versions`]: { status: 202, body: version("pirate", 1, { state: "validating" }) },
    ...routes,
  });
}

async function drop(files: File[]): Promise<void> {
  const items = files.map(() => ({ webkitGetAsEntry: () => null }));
  fireEvent.drop(await screen.findByTestId("drop-zone"), { dataTransfer: { files, items } });
  await screen.findByTestId("chosen-adapter_config.json");
}

describe("uploading an adapter", () => {
  it("sends the adapter's files, seals them and shows the verdict", async () => {
    const network = stub();
    renderApp("/tenants/acme/upload?adapter=pirate");
    await drop(FILES);
    expect(screen.getByTestId("not-sent")).toHaveTextContent("1 file not sent: notes.md (no part of an adapter)");
    await userEvent.click(screen.getByRole("button", { name: "Upload" }));
    expect(await screen.findByText("It passed every check and can be served.")).toBeVisible();
    expect(attempts.map(({ file }) => file.name)).toEqual(["adapter_config.json", "adapter_model.safetensors"]);
    expect(await network.requests(`POST ${BASE}/adapters/pirate/versions`)[0]?.json()).toEqual({
      files: {
        "adapter_config.json": "upl_adapter_config.json",
        "adapter_model.safetensors": "upl_adapter_model.safetensors",
      },
    });
    expect(screen.getByRole("link", { name: "Version 1" })).toHaveAttribute("href", "/tenants/acme/adapters/pirate/versions/1");
  });

  it("announces each file with its digest and shows that the request is the page's own", async () => {
    stub();
    renderApp("/tenants/acme/upload?adapter=pirate");
    await drop(FILES);
    await userEvent.click(screen.getByRole("button", { name: "Upload" }));
    await screen.findByTestId("outcome");
    const { options } = attempts[1] ?? {};
    expect(options?.metadata).toMatchObject({ adapter: "pirate", filename: "adapter_model.safetensors" });
    expect(options?.metadata?.sha256).toMatch(/^[0-9a-f]{64}$/);
    expect(options?.storeFingerprintForResuming).toBe(false);
    csrf.set(session.csrf_token);
    const headers: Record<string, string> = {};
    const request = { setHeader: (name: string, value: string) => (headers[name] = value) };
    void options?.onBeforeRequest?.(request as unknown as Parameters<NonNullable<UploadOptions["onBeforeRequest"]>>[0]);
    expect(headers).toEqual({ "X-CSRF-Token": session.csrf_token });
  });

  it("goes on with what the server has, and doesn't send what it has whole", async () => {
    const [config, weights] = await Promise.all(FILES.slice(0, 2).map(digestOf));
    const open = { adapter: "pirate", expires_at: 1_800_000_000 };
    stub({
      [`GET ${BASE}/uploads`]: {
        body: list(
          { ...open, id: "upl_config", filename: "adapter_config.json", sha256: config, length: 2, received: 2 },
          { ...open, id: "upl_weights", filename: "adapter_model.safetensors", sha256: weights, length: 8, received: 5 },
        ),
      },
    });
    renderApp("/tenants/acme/upload?adapter=pirate");
    expect(await screen.findByTestId("started-earlier")).toHaveTextContent("adapter_model.safetensors: 5 B of 8 B");
    await drop(FILES);
    await userEvent.click(screen.getByRole("button", { name: "Upload" }));
    await screen.findByTestId("outcome");
    expect(attempts.map(({ options }) => options.uploadUrl)).toEqual([expect.stringMatching(/\/uploads\/upl_weights$/)]);
  });

  it("pauses on the spot and goes on from what the server has by then", async () => {
    behave = (attempt) => {
      if (attempt.file.name === "adapter_config.json") succeed(attempt);
      else attempt.options.onProgress?.(3, 8);
    };
    const network = stub();
    renderApp("/tenants/acme/upload?adapter=pirate");
    await drop(FILES);
    await userEvent.click(screen.getByRole("button", { name: "Upload" }));
    await waitFor(() => {
      expect(screen.getByTestId("chosen-adapter_model.safetensors")).toHaveAttribute("data-sent", "3");
    });
    await userEvent.click(screen.getByRole("button", { name: "Pause" }));
    expect(attempts[1]?.aborted).toBe(true);
    expect(screen.getByTestId("phase")).toHaveTextContent("Paused");
    const sha256 = await digestOf(FILES[1]);
    network.answer(`GET ${BASE}/uploads`, {
      body: list({ id: "upl_w", adapter: "pirate", filename: "adapter_model.safetensors", sha256, length: 8, received: 3, expires_at: 0 }),
    });
    behave = succeed;
    await userEvent.click(screen.getByRole("button", { name: "Resume" }));
    await screen.findByTestId("outcome");
    expect(attempts).toHaveLength(3);
    expect(attempts[2]?.options.uploadUrl).toMatch(/upl_w$/);
  });

  it("waits for a line that is gone and goes on by itself when it is back", async () => {
    behave = ({ options }) => options.onError?.(new Error("offline"));
    stub();
    renderApp("/tenants/acme/upload?adapter=pirate");
    await drop(FILES);
    await userEvent.click(screen.getByRole("button", { name: "Upload" }));
    expect(await screen.findByText("Interrupted")).toBeVisible();
    behave = succeed;
    fireEvent(window, new Event("online"));
    await screen.findByTestId("outcome");
  });

  it("shows the server's reason when it doesn't take the files", async () => {
    stub({ [`POST ${BASE}/adapters/pirate/versions`]: refusal(403, "adapter_quota_exceeded", "At most 100 adapters.", "req_7") });
    renderApp("/tenants/acme/upload?adapter=pirate");
    await drop(FILES);
    await userEvent.click(screen.getByRole("button", { name: "Upload" }));
    expect(await screen.findByText("At most 100 adapters.")).toBeVisible();
    expect(screen.getByText("Request req_7")).toBeVisible();
  });

  it("needs a name and a whole adapter before it starts", async () => {
    stub();
    renderApp("/tenants/acme/upload");
    const config = FILES.slice(0, 1);
    await drop(config);
    expect(screen.getByRole("button", { name: "Upload" })).toBeDisabled();
    expect(screen.getByTestId("pace")).toHaveTextContent("Give the adapter a name.");
    await userEvent.type(screen.getByRole("textbox", { name: /Adapter/ }), "pirate");
    expect(screen.getByTestId("pace")).toHaveTextContent("adapter_model.safetensors is missing");
    await drop(FILES);
    expect(screen.getByRole("button", { name: "Upload" })).toBeEnabled();
  });

  it("asks for the alias to be moved when that was wished", async () => {
    const network = stub();
    renderApp("/tenants/acme/upload?adapter=pirate");
    await drop(FILES);
    await userEvent.click(screen.getByRole("checkbox", { name: /Point an alias/ }));
    await userEvent.click(screen.getByRole("button", { name: "Upload" }));
    await screen.findByTestId("outcome");
    expect(await network.requests(`POST ${BASE}/adapters/pirate/versions`)[0]?.json()).toMatchObject({ alias: "live" });
  });
});

async function digestOf(file: File | undefined): Promise<string> {
  const bytes = await (file ?? new File([], "none")).arrayBuffer();
  const { createHash } = await import("node:crypto");
  return createHash("sha256").update(new Uint8Array(bytes)).digest("hex");
}
