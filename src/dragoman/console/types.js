// Made by `make docs` of the gateway's own types. Do not edit: change the Structs.

/** @typedef {[string, string, number|null, string|null, number]} AttemptRow */
/** @typedef {{audit: AuditRow[]}} Audit */
/** @typedef {{number: number, at: number, who: string, what: string, subject: string, before: unknown, after: unknown}} AuditRow */
/** @typedef {{account: string, budget: string, spent: string, reserved: string, left: string, percent: number, resets: string|null}} BudgetView */
/** @typedef {{budgets: BudgetView[]}} Budgets */
/** @typedef {{text: string, digest: string}} ConfigSave */
/** @typedef {{text: string}} ConfigText */
/** @typedef {{good: boolean, why?: string, key?: string, line?: number|null}} ConfigVerdict */
/** @typedef {{number: number, who: string, text: string}} ConfigVersion */
/** @typedef {{source: string, text: string, digest: string, generation: number, versions: ConfigVersion[]}} ConfigView */
/** @typedef {{done: boolean}} Done */
/** @typedef {{name?: string|null, team?: string|null, expires?: number|null, grant?: GrantChange}} EditKey */
/** @typedef {{models?: string[]|null, tools?: string[]|null, rpm?: number|null, tpm?: number|null, at_once?: number|null, budget?: string|null, soft?: number, bodies?: boolean, read_only?: boolean}} Grant */
/** @typedef {{models?: string[]|null, tools?: string[]|null, rpm?: number|null, tpm?: number|null, at_once?: number|null, budget?: string|null, soft?: number, bodies?: boolean, read_only?: boolean}} GrantChange */
/** @typedef {{id: string, key: string}} KeyMade */
/** @typedef {{id: string, name: string, admin: boolean, team: string, created: number, revoked: number|null, expires: number|null, grant: Grant, in_file?: boolean}} KeyView */
/** @typedef {{keys: KeyView[]}} Keys */
/** @typedef {{requests: number, errors: number, median_ms: number, p95_ms: number}} Latency */
/** @typedef {{id: string, at: number, key?: string, key_id?: string, team?: string, tags?: string, client?: string, door?: string, asked?: string, upstream?: string, model?: string, input?: number|null, cache_read?: number|null, cache_write?: number|null, output?: number|null, reasoning?: number|null, cost?: number|null, currency?: string, status?: number, failure?: string, first_ms?: number|null, total_ms?: number, tries?: number, harmless?: number, changed?: number, lost?: number, estimated?: boolean, bodies?: string, attempts?: AttemptRow[], charged?: Line[], instead?: number|null}} LedgerRow */
/** @typedef {{account: string, period: number, limit: number, soft?: number}} Line */
/** @typedef {{minute: number, requests: number, errors: number, tokens: number, firsts: Object<string, number>}} Minute */
/** @typedef {{name?: string, admin?: boolean, team?: string, grant?: Grant, expires?: number|null}} NewKey */
/** @typedef {{name: string, url: string, transport?: ""|"auto"|"http"|"sse"}} NewMcpServer */
/** @typedef {{kind: "altered"|"dropped"|"invented"|"repaired", where: string, why: string, canonical?: string, body?: "reply"|"request", target?: string}} Note */
/** @typedef {{rows: LedgerRow[], cursor?: string}} Page */
/** @typedef {{providers: Object<string, unknown>, latencies: Object<string, Latency>}} Providers */
/** @typedef {{id: string, model: string, dialect?: string}} Replay */
/** @typedef {{id: string, status: number}} Replayed */
/** @typedef {{grace_s?: number}} Rotate */
/** @typedef {{name: string, title: string, group: string, requests: number}} ScenarioView */
/** @typedef {{open: boolean, session?: boolean, name?: string, read_only?: boolean, xray_keep?: number, key_store?: boolean, other_port?: number}} Session */
/** @typedef {{providers?: string[], groups?: string[]}} StartVerify */
/** @typedef {{by: Object<string, string|number>, requests: number, failed: number, unpriced: number, input: number, cache_read: number, cache_write: number, output: number, reasoning: number, cost: number, total_ms: number}} Sums */
/** @typedef {{name: string, grant: Grant, keys?: number}} TeamView */
/** @typedef {{teams: TeamView[]}} Teams */
/** @typedef {{rows: TrafficRow[], next: number|null, total?: number|null, last?: number|null, now?: number|null, minutes?: Minute[]|null}} TrafficPage */
/** @typedef {{seq: number, id: string, time: number, key: string, program: string, door: string, asked: string, upstream: string, model: string, status: number, failure: string, first_ms: number|null, ms: number, input: number|null, output: number|null, cost: string|null, lost: number, changed: number, harmless: number, tries: number, kept: boolean}} TrafficRow */
/** @typedef {{text: string, what?: "reply"|"request"|"stream", source?: string}} Translate */
/** @typedef {{dialect: string, value?: unknown, notes?: Note[], error?: string|null}} Translation */
/** @typedef {{source: string, results: Translation[]}} Translations */
/** @typedef {{usage: Sums[]}} UsageReport */
/** @typedef {{target: string, scenario: string, outcome: string, words: string, seconds: number}} VerifyCellView */
/** @typedef {{id: number, who: string, scenarios: string[], targets: VerifyTargetView[], cells: VerifyCellView[], total: number, seconds?: number, done?: boolean, trouble?: string}} VerifyRunView */
/** @typedef {{name: string, dialect: string, model: string, skip?: string}} VerifyTargetView */
/** @typedef {{available: boolean, scenarios: ScenarioView[], targets: VerifyTargetView[], runs: VerifyRunView[]}} VerifyView */

export {};
