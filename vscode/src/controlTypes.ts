// Generated from the code by .ci/reference.py: docs/reference/control-socket.md explains the fields.

export interface ClientId {
  id: string;
  pid: number;
  namespace: string;
  hc: string;
  command: string;
  started: number;
  cwd: string;
  version: string;
  verbs: string[];
}

export interface GpuUsage {
  name: string;
  busy: number;
  memory: number;
  total: number;
}

export interface AllocatorUsage {
  allocated: number;
  reserved: number;
  peak: number;
  ooms: number;
  retries: number;
}

export interface GpuShare {
  number: number;
  memory: number;
  is_reserved: boolean;
}

export interface ProcessUsage {
  port: number;
  cpu: number;
  memory: number;
  allocator?: AllocatorUsage;
  gpus: GpuShare[];
}

export interface NodeUsage {
  time: number;
  cpu: number;
  cores: number;
  memory: number;
  total: number;
  gpus: GpuUsage[];
  processes: ProcessUsage[];
}

export interface StopReport {
  reason: string;
  since: number;
  file?: string;
  line?: number;
  function?: string;
  uncaught?: string;
}

export interface Target {
  port: number;
  rank?: number;
  world?: number;
  pid?: number;
  script?: string;
  kind: string;
  text: string;
  place: string;
  state?: string;
  detail?: string;
  since?: number;
  until?: number;
  holder?: string;
  held_since?: number;
  is_away: boolean;
  is_consequence: boolean;
  waits: string;
  local_ports: number[];
  attached_here: boolean;
  stop?: StopReport;
}

export interface Ended {
  port: number;
  how: string;
  pid?: number;
  is_final: boolean;
  rank?: number;
}

export interface Node {
  agent: string;
  host: string;
  link: string;
  link_since: number;
  link_reason?: string;
  round_trip?: number;
  node_rank?: number;
  run?: string;
  run_url?: string;
  cwd?: string;
  usage?: NodeUsage;
  targets: Target[];
  forwards: number[];
  ended: Ended[];
}

export interface Port {
  port: number;
  remote_port: number;
  is_forward: boolean;
  node_rank?: number;
  is_on_demand: boolean;
  is_all_ranks: boolean;
  is_editor: boolean;
}

export interface Connection {
  number: number;
  port: number;
  state: string;
  since: number;
  reason?: string;
  sent: number;
  received: number;
  stop?: StopReport;
  remote_port?: number;
}

export interface Status {
  client: ClientId;
  time: number;
  nodes: Node[];
  ports: Port[];
  connections: Connection[];
}

export interface RelayEvent {
  event: string;
  time: number;
  text: string;
  client: string;
  agent?: string;
  host?: string;
  rank?: number;
  port?: number;
  pid?: number;
  connection?: number;
  state?: string;
  detail?: string;
  holder?: string;
  reason?: string;
  file?: string;
  line?: number;
  level?: string;
}

export interface Attached {
  port: number;
  local_port: number;
  host: string;
  is_new: boolean;
  rank?: number;
  node: string;
  holder?: string;
}
