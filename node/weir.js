#!/usr/bin/env node
'use strict';

const { spawn } = require('child_process');
const os = require('os');
const { isatty } = require('tty');
const weir = require('.');

const usage = `usage: weir run PROGRAM ARGUMENTS...   a program on Weir: \`weir run node app.js\`
       weir library                    print the path of the library, for LD_PRELOAD
`;

function fail(code, message) {
  process.stderr.write(message);
  process.exit(code);
}

/** Runs the program, hands signals on to it, and ends as it ends. */
function run(program, words) {
  const env = { ...process.env, LD_PRELOAD: weir.preload() };
  const child = spawn(program, words, { env, stdio: 'inherit' });
  // A terminal sends its signals to the program as well. `process.stdin` is not asked: it would make the program's non-blocking.
  const terminals = [0, 1, 2].some(isatty) ? ['SIGINT', 'SIGQUIT'] : [];
  for (const signal of ['SIGHUP', 'SIGINT', 'SIGQUIT', 'SIGTERM', 'SIGUSR1', 'SIGUSR2']) {
    process.on(signal, () => terminals.includes(signal) || child.kill(signal));
  }
  child.on('error', (why) => fail(why.code === 'ENOENT' ? 127 : 126, `weir: cannot start ${program}: ${why.message}\n`));
  child.on('exit', (code, signal) => process.exit(signal ? 128 + os.constants.signals[signal] : code));
}

const [command, ...words] = process.argv.slice(2);
try {
  if (command === 'run' && words.length > 0) run(words[0], words.slice(1));
  else if (command === 'library' && words.length === 0) console.log(weir.library());
  else if (command === '--help' || command === '-h') process.stdout.write(usage);
  else fail(2, usage);
} catch (why) {
  fail(1, `weir: ${why.message}\n`);
}
