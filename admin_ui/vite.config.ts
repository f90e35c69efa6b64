import react from "@vitejs/plugin-react";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const adminUrl = process.env.LORIKEET_ADMIN_URL ?? "http://127.0.0.1:8001";

export default defineConfig({
  plugins: [react()],
  resolve: { alias: { "@": fileURLToPath(new URL("./src", import.meta.url)) } },
  build: {
    // Inside the import package, so that an editable install and a wheel find the pages the same way.
    outDir: "lorikeet_admin_ui/static",
    emptyOutDir: true,
    // Everything stays a file: the server's content security policy needs no data: addresses.
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 800,
  },
  server: { proxy: { "/admin/v1": adminUrl, "/auth": adminUrl } },
  test: {
    environment: "jsdom",
    setupFiles: ["src/testing/setup.ts"],
    include: ["src/**/*.test.{ts,tsx}"],
    testTimeout: 20_000,
    restoreMocks: true,
    unstubGlobals: true,
  },
});
