import { Anchor, Breadcrumbs, Group, Stack, Text, Title } from "@mantine/core";
import { useDocumentTitle } from "@mantine/hooks";
import type { ReactNode } from "react";
import { Link } from "wouter";

interface PageProps {
  title: string;
  testId: string;
  trail?: { label: string; to: string }[];
  subtitle?: ReactNode;
  actions?: ReactNode;
  children: ReactNode;
}

/** Title row and content of one page; also names the browser's tab. */
export function Page({ title, testId, trail = [], subtitle, actions, children }: PageProps) {
  useDocumentTitle(`${title} · Lorikeet`);
  return (
    <Stack gap="lg" data-testid={testId}>
      <Group justify="space-between" align="flex-end" gap="sm">
        <Stack gap={2} style={{ flex: "1 1 0", minWidth: 260 }}>
          {trail.length > 0 && (
            <Breadcrumbs fz="sm">
              {trail.map(({ label, to }) => (
                <Anchor key={to} component={Link} to={to} fz="sm" c="dimmed">
                  {label}
                </Anchor>
              ))}
              <Text fz="sm" c="dimmed">
                {title}
              </Text>
            </Breadcrumbs>
          )}
          <Title order={1} fz={24} lh={1.25} style={{ overflowWrap: "anywhere" }}>
            {title}
          </Title>
          {subtitle !== undefined && (
            <Text c="dimmed" fz="sm" component="div">
              {subtitle}
            </Text>
          )}
        </Stack>
        {actions}
      </Group>
      {children}
    </Stack>
  );
}
