// What a server of tests needs and dynalite lacks.
const { createRequire } = require('module')
const { resolve } = require('path')

// It throws where a client goes away in the middle of a request, and would end with it.
process.on('uncaughtException', (error) => {
  console.error(error)
  if (error.code !== 'ECONNRESET') process.exit(1)
})

// It never closes an iterator (its streams call a method that iterators do not have), and each holds
// a snapshot. LevelDB 1.20 mixes up versions of a key that a snapshot kept apart: once a key was
// deleted with its table and put anew, a get found the deletion where a scan found the item.
// reread.py shows it.
const dynalite = createRequire(resolve(process.argv[1]))
const { AbstractKeyIterator } = createRequire(dynalite.resolve('level'))('abstract-level')
Object.getPrototypeOf(AbstractKeyIterator.prototype).return = function () {
  return this.close()
}

// It deletes a table key by key, and what LevelDB deleted stays until that part of the file is
// compacted: each scan reads past all of it that lies behind its table, and after some thousands
// of tables takes 0.1 s for an empty one.
const COMPACT_AFTER = 500 // ms
const { ClassicLevel } = createRequire(dynalite.resolve('level'))('classic-level')
const batch = ClassicLevel.prototype._batch
let due
ClassicLevel.prototype._batch = async function (operations, options) {
  await batch.call(this, operations, options)
  if (due || !operations.some(({ type }) => type === 'del')) return
  due = setTimeout(() => {
    due = undefined
    if (this.status === 'open') this.compactRange('', '\uffff').catch(console.error)
  }, COMPACT_AFTER).unref()
}
