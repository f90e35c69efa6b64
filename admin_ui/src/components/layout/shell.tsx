import {
  ActionIcon,
  AppShell,
  Burger,
  Group,
  NavLink,
  Text,
  Tooltip,
  useComputedColorScheme,
  useMantineColorScheme,
} from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import type { ReactNode } from "react";
import { Link, useLocation } from "wouter";

import mark from "@/assets/lorikeet.svg";

import {
  AuditIcon,
  EngineIcon,
  JobsIcon,
  MoonIcon,
  OverviewIcon,
  PlannerIcon,
  PlansIcon,
  SignOutIcon,
  SunIcon,
  TenantsIcon,
  UsageIcon,
} from "@/components/icons";

export function ColorSchemeSwitch() {
  const { setColorScheme } = useMantineColorScheme();
  const dark = useComputedColorScheme("light") === "dark";
  const label = dark ? "Switch to the light scheme" : "Switch to the dark scheme";
  return (
    <Tooltip label={label}>
      <ActionIcon
        variant="subtle"
        color="gray"
        size="lg"
        aria-label={label}
        onClick={() => {
          setColorScheme(dark ? "light" : "dark");
        }}
      >
        {dark ? <SunIcon /> : <MoonIcon />}
      </ActionIcon>
    </Tooltip>
  );
}

export function Brand() {
  return (
    <Group gap={10} wrap="nowrap">
      <img src={mark} alt="" width={30} height={30} />
      <Text fw={700} fz="lg" lh={1}>
        Lorikeet
      </Text>
    </Group>
  );
}

const DESTINATIONS = [
  { to: "/", label: "Overview", icon: <OverviewIcon />, holds: (path: string) => path === "/" },
  { to: "/engine", label: "Engine", icon: <EngineIcon />, holds: (path: string) => path === "/engine" },
  { to: "/planner", label: "Planner", icon: <PlannerIcon />, holds: (path: string) => path === "/planner" },
  { to: "/tenants", label: "Tenants", icon: <TenantsIcon />, holds: (path: string) => path.startsWith("/tenants") },
  { to: "/usage", label: "Usage", icon: <UsageIcon />, holds: (path: string) => path === "/usage" },
  { to: "/plans", label: "Plans", icon: <PlansIcon />, holds: (path: string) => path.startsWith("/plans") },
  { to: "/jobs", label: "Jobs", icon: <JobsIcon />, holds: (path: string) => path === "/jobs" },
  { to: "/audit", label: "Audit", icon: <AuditIcon />, holds: (path: string) => path === "/audit" },
];

export function Shell({ onSignOut, children }: { onSignOut: () => void; children: ReactNode }) {
  const [path] = useLocation();
  const [opened, { toggle, close }] = useDisclosure(false);
  return (
    <AppShell
      header={{ height: 56 }}
      navbar={{ width: 200, breakpoint: "sm", collapsed: { mobile: !opened } }}
      padding="lg"
      transitionDuration={0}
    >
      <a className="skip-link" href="#content">
        Skip to the content
      </a>
      <AppShell.Header px="md">
        <Group h="100%" justify="space-between" wrap="nowrap">
          <Group gap="sm" wrap="nowrap">
            <Burger
              opened={opened}
              onClick={toggle}
              hiddenFrom="sm"
              size="sm"
              aria-label={opened ? "Close navigation" : "Open navigation"}
              aria-expanded={opened}
            />
            <Brand />
          </Group>
          <Group gap={4} wrap="nowrap">
            <ColorSchemeSwitch />
            <Tooltip label="Sign out">
              <ActionIcon variant="subtle" color="gray" size="lg" aria-label="Sign out" onClick={onSignOut}>
                <SignOutIcon />
              </ActionIcon>
            </Tooltip>
          </Group>
        </Group>
      </AppShell.Header>
      <AppShell.Navbar p="xs" aria-label="Pages">
        {DESTINATIONS.map(({ to, label, icon, holds }) => (
          <NavLink
            key={to}
            component={Link}
            to={to}
            label={label}
            leftSection={icon}
            active={holds(path)}
            aria-current={holds(path) ? "page" : undefined}
            onClick={close}
            style={{ borderRadius: "var(--mantine-radius-md)" }}
          />
        ))}
      </AppShell.Navbar>
      <AppShell.Main id="content">
        <div style={{ maxWidth: 1200, marginInline: "auto" }}>{children}</div>
      </AppShell.Main>
    </AppShell>
  );
}
