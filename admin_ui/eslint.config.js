import js from "@eslint/js";
import reactHooks from "eslint-plugin-react-hooks";
import { defineConfig, globalIgnores } from "eslint/config";
import tseslint from "typescript-eslint";

export default defineConfig([
  globalIgnores(["lorikeet_admin_ui/static", "src/api/schema.gen.ts"]),
  js.configs.recommended,
  {
    files: ["src/**/*.{ts,tsx}", "vite.config.ts"],
    extends: [tseslint.configs.strictTypeChecked, tseslint.configs.stylisticTypeChecked],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    rules: {
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
      "max-lines": ["error", 400],
    },
  },
  { files: ["src/**/*.{ts,tsx}"], extends: [reactHooks.configs.flat.recommended] },
  {
    files: ["e2e/*.mjs"],
    languageOptions: {
      globals: {
        process: "readonly",
        console: "readonly",
        URL: "readonly",
        // In functions that run inside the page.
        window: "readonly",
        document: "readonly",
        PerformanceObserver: "readonly",
        setTimeout: "readonly",
        DataTransfer: "readonly",
        File: "readonly",
        atob: "readonly",
        fetch: "readonly",
      },
    },
  },
]);
