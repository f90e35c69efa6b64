import { createTheme, type MantineColorsTuple } from "@mantine/core";

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

export const theme = createTheme({
  colors: { wing },
  primaryColor: "wing",
  primaryShade: { light: 8, dark: 8 },
  autoContrast: true,
  defaultRadius: "md",
  cursorType: "pointer",
  fontFamily: 'Inter, system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif',
  fontFamilyMonospace: 'ui-monospace, "SF Mono", "Cascadia Mono", "DejaVu Sans Mono", Menlo, Consolas, monospace',
  headings: { fontWeight: "650" },
  components: {
    Table: { defaultProps: { verticalSpacing: 8, horizontalSpacing: "sm" } },
    Tooltip: { defaultProps: { withArrow: true, openDelay: 250 } },
    Badge: { defaultProps: { variant: "light", radius: "sm", tt: "none", fw: 600 } },
  },
});
