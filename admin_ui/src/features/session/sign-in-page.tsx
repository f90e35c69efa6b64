import { Alert, Button, Center, Group, Loader, Paper, Stack, Text, Title } from "@mantine/core";
import { useDocumentTitle } from "@mantine/hooks";
import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState, type ReactNode } from "react";
import { Redirect, useLocation, useSearchParams } from "wouter";

import { setSession } from "@/api/query-client";
import { Command } from "@/components/command";
import { Brand, ColorSchemeSwitch } from "@/components/layout/shell";

import { bootstrap, useSession } from "./session";

/** Owner links come here: `/sign-in?token=…`. The token leaves the address bar before anything else happens. */
export function SignInPage() {
  useDocumentTitle("Sign in · Lorikeet");
  const [params] = useSearchParams();
  const [token] = useState(() => params.get("token"));
  return (
    <Center mih="100vh" p="md" component="main">
      <Paper withBorder p="xl" w={440} maw="100%" shadow="sm">
        <Stack gap="lg">
          <Group justify="space-between">
            <Brand />
            <ColorSchemeSwitch />
          </Group>
          {token ? <ExchangeToken token={token} /> : <SignedOut />}
        </Stack>
      </Paper>
    </Center>
  );
}

type Progress = { kind: "signing-in" } | { kind: "refused" } | { kind: "failed"; message: string };

function ExchangeToken({ token }: { token: string }) {
  const client = useQueryClient();
  const [, navigate] = useLocation();
  const [progress, setProgress] = useState<Progress>({ kind: "signing-in" });
  const started = useRef(false);

  async function exchange(): Promise<void> {
    setProgress({ kind: "signing-in" });
    const outcome = await bootstrap(token);
    if (outcome.kind !== "signed-in") {
      setProgress(outcome);
      return;
    }
    client.clear();
    setSession(client, outcome.session);
    navigate("/", { replace: true });
  }

  useEffect(() => {
    if (started.current) return;
    started.current = true;
    window.history.replaceState(null, "", "/sign-in");
    void exchange();
    // The token works once: this runs once, whatever is drawn again.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, []);

  if (progress.kind === "refused") return <Refused />;
  if (progress.kind === "failed") {
    return (
      <State name="failed" title="Signing in did not work">
        <Alert color="red" variant="light" role="alert">
          {progress.message}
        </Alert>
        <Button onClick={() => void exchange()}>Try again</Button>
      </State>
    );
  }
  return (
    <State name="signing-in" title="Signing you in">
      <Group gap="sm">
        <Loader size="sm" aria-hidden />
        <Text c="dimmed" fz="sm">
          Checking your owner link …
        </Text>
      </Group>
    </State>
  );
}

/** A used link opened again, for instance from the terminal's history: whoever is still signed in just goes on. */
function Refused() {
  const session = useSession();
  if (session.data) return <Redirect to="/" replace />;
  return (
    <State name="refused" title="This link has been used or has expired">
      <Text fz="sm">An owner link signs in one browser, once. Start Lorikeet again and it prints a new link:</Text>
      <Command>lorikeet up</Command>
    </State>
  );
}

function SignedOut() {
  const session = useSession();
  if (session.data) return <Redirect to="/" replace />;
  return (
    <State name="no-token" title="Sign in with your owner link">
      <Text fz="sm">
        Lorikeet prints a one-time owner link when it starts. Open that link in this browser; if you no longer have it,
        start Lorikeet again and it prints a new one:
      </Text>
      <Command>lorikeet up</Command>
    </State>
  );
}

function State({ name, title, children }: { name: string; title: string; children: ReactNode }) {
  return (
    <Stack gap="sm" data-testid="sign-in-state" data-state={name} aria-live="polite">
      <Title order={1} fz="xl">
        {title}
      </Title>
      {children}
    </Stack>
  );
}
