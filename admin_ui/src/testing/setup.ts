import "@testing-library/jest-dom/vitest";

import { cleanup, configure } from "@testing-library/react";
import { afterEach, beforeEach, vi } from "vitest";

import { csrf } from "@/api/csrf";

// A busy machine is no failure.
configure({ asyncUtilTimeout: 5000 });

// What the kit asks of a browser and jsdom does not have.
class NoResizeObserver implements ResizeObserver {
  observe = (): void => undefined;
  unobserve = (): void => undefined;
  disconnect = (): void => undefined;
}

Element.prototype.scrollIntoView = () => undefined;

Blob.prototype.arrayBuffer = function (this: Blob): Promise<ArrayBuffer> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => {
      resolve(reader.result as ArrayBuffer);
    };
    reader.onerror = () => {
      reject(new Error("The file could not be read."));
    };
    reader.readAsArrayBuffer(this);
  });
};

beforeEach(() => {
  vi.stubGlobal("ResizeObserver", NoResizeObserver);
  vi.stubGlobal("matchMedia", (query: string) => ({
    matches: false,
    media: query,
    onchange: null,
    addEventListener: () => undefined,
    removeEventListener: () => undefined,
    dispatchEvent: () => false,
  }));
});

afterEach(() => {
  cleanup();
  csrf.set(null);
  window.history.replaceState(null, "", "/");
});
