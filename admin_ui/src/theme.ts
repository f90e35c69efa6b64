import { createTheme, type CSSVariablesResolver, type MantineColorsTuple } from "@mantine/core";

/** The green of a lorikeet's wing; shade 8 carries white text at 4.5 : 1. */
const wing: MantineColorsTuple = [
  "#e9f8f0",
  "#d3eee0",
  "#a8dcc2",
  "#79c9a1",
  "#52b885",
  "#38ac72",
  "#279f65",
  "#1a8855",
  "#0f7347",
  "#075a36",
];

/** A cooler night than the kit's neutral greys. */
const dark: MantineColorsTuple = [
  "#c9d1d3",
  "#aab4b7",
  "#8d989c",
  "#5f6a6e",
  "#3c4549",
  "#2d3539",
  "#242b2e",
  "#1b2123",
  "#15191b",
  "#101314",
];

export const theme = createTheme({
  colors: { wing, dark },
  primaryColor: "wing",
  primaryShade: { light: 8, dark: 8 },
  autoContrast: true,
  defaultRadius: "md",
  cursorType: "pointer",
  respectReducedMotion: true,
  fontFamily: 'Inter, system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif',
  fontFamilyMonospace: 'ui-monospace, "SF Mono", "Cascadia Mono", "DejaVu Sans Mono", Menlo, Consolas, monospace',
  headings: { fontWeight: "650" },
  components: {
    Table: { defaultProps: { verticalSpacing: 8, horizontalSpacing: "md" } },
    Tooltip: { defaultProps: { withArrow: true, openDelay: 250 } },
    Badge: { defaultProps: { variant: "light", radius: "sm", tt: "none", fw: 600, miw: "max-content" } },
  },
});

/** Where the kit's own text colours miss 4.5 : 1 on the grey page or on a tinted badge. */
export const cssVariablesResolver: CSSVariablesResolver = () => ({
  variables: {},
  light: {
    "--mantine-color-dimmed": "#56616a",
    "--mantine-color-error": "#c92a2a",
    "--mantine-color-green-light-color": "#1d6330",
    "--mantine-color-blue-light-color": "#125a9e",
    "--mantine-color-red-light-color": "#a51d1d",
    "--mantine-color-orange-light-color": "#9a3f00",
    "--mantine-color-yellow-light-color": "#7a4a00",
    "--mantine-color-gray-light-color": "#495057",
  },
  dark: {
    "--mantine-color-dimmed": "#9aa6ad",
    "--mantine-color-error": "#ff8787",
    // Tints instead of the kit's solid dark reds and greens: a state is told, not shouted.
    "--mantine-color-green-light": "rgba(64, 192, 87, 0.16)",
    "--mantine-color-green-light-color": "#8ce99a",
    "--mantine-color-blue-light": "rgba(51, 154, 240, 0.16)",
    "--mantine-color-blue-light-color": "#a5d8ff",
    "--mantine-color-red-light": "rgba(250, 82, 82, 0.16)",
    "--mantine-color-red-light-color": "#ffa8a8",
    "--mantine-color-orange-light": "rgba(255, 146, 43, 0.16)",
    "--mantine-color-orange-light-color": "#ffc078",
    "--mantine-color-yellow-light": "rgba(252, 196, 25, 0.13)",
    "--mantine-color-yellow-light-color": "#ffe066",
    "--mantine-color-gray-light": "rgba(134, 142, 150, 0.18)",
    "--mantine-color-gray-light-color": "#ced4da",
  },
});
