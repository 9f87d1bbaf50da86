'use strict';

const fs = require('fs');
const path = require('path');

const isWeir = (name) => path.basename(name).startsWith('libweir.so');

/** The library's path: WEIR_LIB, or what the package carries. */
exports.library = () => {
  const file = path.resolve(process.env.WEIR_LIB || path.join(__dirname, 'libweir.so.0'));
  if (!fs.existsSync(file) || !fs.statSync(file).isFile()) {
    throw new Error(`${file} is missing: install the package weir-malloc again, or set WEIR_LIB`);
  }
  if (/[ :\n]/.test(file)) throw new Error(`LD_PRELOAD cannot hold a path with a blank or a colon: ${file}`);
  return file;
};

/** A value of LD_PRELOAD: the library, or the Weir that is there already, before all else: the first malloc is called. */
exports.preload = (before = process.env.LD_PRELOAD || '') => {
  const names = before.split(/[ :]+/).filter(Boolean);
  return [names.find(isWeir) || exports.library(), ...names.filter((name) => !isWeir(name))].join(':');
};

/** Whether this process has loaded Weir. Behind another malloc in LD_PRELOAD it is loaded, and not called. */
exports.isLoaded = () => fs.readFileSync('/proc/self/maps', 'utf8').split('\n').some(isWeir);
